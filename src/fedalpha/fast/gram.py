"""The Gram matrix of a cohort's updates, with the same bytes in every engine and in a live federation.

It is one NumPy product per slice of coordinates, on one thread: the number of threads decides in which order a BLAS
adds. Slices bound the memory besides the models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

COLUMNS = 1 << 16
VALUES = 1 << 21
"""At most this many coordinates and values at a time."""

Arrays = Mapping[str, NDArray[Any]]


def gram(models: Sequence[Arrays], current: Arrays) -> NDArray[np.float64]:
    """⟨w_i − w_t, w_j − w_t⟩ over all floating arrays of ``current`` (w_t), in float64.

    >>> gram([{"w": np.array([1.0, 3.0])}, {"w": np.array([1.0, 1.0])}], {"w": np.ones(2)})
    array([[4., 0.],
           [0., 0.]])
    """
    n = len(models)
    width = max(1, min(COLUMNS, VALUES // max(n, 1)))
    found = np.zeros((n, n))
    with _libraries().limit(limits=1, user_api="blas"):
        for name, old in current.items():
            if not np.issubdtype(old.dtype, np.floating):
                continue
            base, flat = old.reshape(-1), [model[name].reshape(-1) for model in models]
            for start in range(0, len(base), width):
                part = slice(start, start + width)
                moves = np.empty((n, len(base[part])))
                for row, values in zip(moves, flat, strict=True):
                    np.subtract(values[part], base[part], out=row, dtype=np.float64)
                found += moves @ moves.T
    return found


@cache
def _libraries() -> ThreadpoolController:
    """The libraries of this process that have threads of their own; looking for them takes milliseconds."""
    return ThreadpoolController()
