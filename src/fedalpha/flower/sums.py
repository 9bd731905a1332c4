"""Σ alpha_i·w_i in NumPy, to the bit what `fedalpha.combine.sums` gives in torch.

Float64, blocks of the id-sorted cohort merged in block order, products rounded before they are
added; integer buffers come from the heaviest client.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedalpha.fast.blocks import blocks
from fedalpha.strategies import Array

Arrays = dict[str, NDArray[Any]]
"""A model: arrays by name."""
_ZERO = np.zeros(())


def is_float(value: NDArray[Any]) -> bool:
    return np.issubdtype(value.dtype, np.floating)


def weighted_sum(alpha: Array, models: Sequence[Mapping[str, NDArray[Any]]]) -> Arrays:
    """Σ alpha_i·w_i; clients with alpha = 0 are skipped.

    >>> weighted_sum(np.array([0.25, 0.75]), [{"w": np.ones(2)}, {"w": np.zeros(2)}])
    {'w': array([0.25, 0.25])}
    """
    total: Arrays = {}
    heaviest = -1.0
    for block in blocks(len(alpha)):
        part: Arrays = {}
        top = -1.0
        for i in block:
            a = float(alpha[i])
            if a == 0:
                continue
            for name, value in models[i].items():
                if is_float(value):
                    wide = value.astype(np.float64) * a
                    part[name] = part.get(name, _ZERO) + wide
                elif a > top:
                    part[name] = value
            top = max(top, a)
        for name, value in part.items():
            if name not in total:
                total[name] = value
            elif is_float(value):
                total[name] = total[name] + value
            elif top > heaviest:
                total[name] = value
        heaviest = max(heaviest, top)
    return total


def weighted_mean(alpha: Array, models: Sequence[Mapping[str, NDArray[Any]]], current: Arrays, simplex: bool) -> Arrays:
    """The aggregate, each array in the dtype of ``current``.

    Off the simplex alpha are coefficients of w_t + Σ alpha_i (w_i − w_t).
    """
    total = weighted_sum(alpha, models)
    rest = 0.0 if simplex else 1 - math.fsum(alpha.tolist())
    result: Arrays = {}
    for name, old in current.items():
        value = total.get(name)
        if value is None:  # every alpha is zero
            value = old.astype(np.float64) * rest if is_float(old) else old
        elif rest and is_float(old):
            value = value + rest * old.astype(np.float64)
        result[name] = np.asarray(value).astype(old.dtype)
    return result
