"""Σ alpha_i·w_i in float64, in an order that depends only on the cohort.

The id-sorted cohort is cut into fixed blocks. Each block is summed in id order, and the blocks are
merged in block order. The bytes therefore do not depend on the order or the machine in which blocks are
computed. Products are rounded before they are added, without fused multiply-add, which torch
uses or not depending on the processor and the place in the array. `fedalpha.flower.sums`, which
does the same in NumPy, therefore gives the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedalpha.fast.blocks import blocks
from fedalpha.fast.compiled import numba_version
from fedalpha.fast.gram import norms
from fedalpha.models import Parameters
from fedalpha.strategies import Array

Alone = Callable[[Array], Array]
"""The factors of single updates before they are added, computed only from their norms ‖w_i − w_t‖."""
_PIECE = 1 << 15
_WORTH_COMPILING = 1 << 17
"""For sums of fewer values, importing numba takes longer than the sum."""
_WORTH_THREADS = 1 << 24
"""Sums of fewer values use one thread."""


@dataclass(frozen=True, eq=False)
class Scale:
    """The scaling of single updates before they are added: ``alone`` computes the factor from the norm of w_i − w_t."""

    alone: Alone
    sent: Parameters
    """w_t"""

    def __call__(self, alpha: Sequence[float], stacked: Parameters) -> list[float]:
        """The factors of models that are stacked along the first axis."""
        rows = {name: array(value.to("cpu")) for name, value in stacked.items() if value.is_floating_point()}
        sent = {name: array(self.sent[name]) for name in rows}
        found = norms([{name: row[i] for name, row in rows.items()} for i in range(len(alpha))], sent)
        factors: list[float] = (np.array(alpha) * self.alone(found)).tolist()
        return factors


class Sum:
    """A running Σ alpha_i·w_i: floats in float64; integer buffers come from the heaviest client."""

    def __init__(
        self,
        values: Parameters | None = None,
        heaviest: float = -1.0,
        alone: Iterable[tuple[float, float]] = (),
    ) -> None:
        self.values: Parameters = {} if values is None else values
        self.heaviest = heaviest
        self.alone = list(alone)
        """For each update that was scaled before it was added: alpha_i, and the factor of the model in the sum."""

    def copy(self) -> Sum:
        return Sum({name: value.clone() for name, value in self.values.items()}, self.heaviest, self.alone)

    def add(self, alpha: float, parameters: Parameters, scale: Scale | None = None) -> None:
        """Add one client's model; raises ValueError if its form differs (torch would broadcast it silently)."""
        self.add_stack([alpha], {name: value[None] for name, value in parameters.items()}, scale)

    def add_stack(self, alpha: Sequence[float], stacked: Parameters, scale: Scale | None = None) -> None:
        """Add several clients' models, stacked along the first axis, one after the other; scaled ones by ``scale``.

        Models are read and not copied: the i-th update is scaled by adding w_i with a smaller factor; the rest of
        the weight is given to the current model at the end.
        """
        self._check({name: value.shape[1:] for name, value in stacked.items()})
        factors = alpha
        if scale is not None:
            factors = scale(alpha, stacked)
            self.alone += zip(alpha, factors, strict=True)
        large = sum(value.numel() for value in stacked.values()) >= _WORTH_COMPILING
        for name, value in stacked.items():
            if value.is_floating_point():
                if name not in self.values:
                    self.values[name] = torch.zeros(value.shape[1:], dtype=torch.float64)
                _accumulate(self.values[name], value.detach().to("cpu"), factors, large and numba_version() is not None)
            else:
                heaviest = max(range(len(alpha)), key=alpha.__getitem__)
                if alpha[heaviest] > self.heaviest:
                    self.values[name] = value[heaviest].to("cpu", copy=True)
        self.heaviest = max(self.heaviest, *alpha)

    def merge(self, *others: Sum) -> None:
        """Add the sums of later blocks, in their order."""
        for other in others:
            if other.values:
                self._check({name: value.shape for name, value in other.values.items()})
            for name, value in other.values.items():
                if name not in self.values:
                    self.values[name] = value.clone()
                elif value.is_floating_point():
                    self.values[name].add_(value)
                elif other.heaviest > self.heaviest:
                    self.values[name] = value.clone()
            self.heaviest = max(self.heaviest, other.heaviest)
            self.alone += other.alone

    def _check(self, shapes: Mapping[str, torch.Size]) -> None:
        for name, value in self.values.items():
            if shapes.get(name) != value.shape:
                raise ValueError(f"a client's tensor {name!r} is missing or of another shape than the others'")


def _accumulate(total: Tensor, values: Tensor, alpha: Sequence[float], compiled: bool) -> None:
    """total += alpha_i·values_i for each i, in pieces that stay in the processor's cache."""
    rows, flat = values.reshape(len(alpha), -1), total.view(-1)
    if compiled and rows.dtype == torch.float32:
        from fedalpha.fast.kernels import accumulate

        accumulate(rows.numpy(), np.array(alpha), flat.numpy())
        return
    weights = torch.tensor(alpha, dtype=torch.float64)[:, None]
    for start in range(0, flat.numel(), _PIECE):
        piece = slice(start, start + _PIECE)
        for row, weight in zip(rows, weights, strict=True):
            flat[piece].add_(row[piece].to(torch.float64, copy=True).mul_(weight))  # a copy also of float64 values


def array(value: Tensor) -> NDArray[Any]:
    """The tensor as a NumPy array, without a copy unless NumPy lacks the dtype (bfloat16)."""
    found: NDArray[Any] = (value.double() if value.dtype is torch.bfloat16 else value.detach()).numpy()
    return found


def add_product(total: Tensor, weight: float, values: Tensor) -> None:
    """total += weight·values in float64, the product rounded before it is added, whatever the layout of ``values``."""
    _accumulate(total, values.detach()[None], [weight], False)


def weighted_sum(alpha: Array, models: Iterable[Parameters]) -> Sum:
    """Σ alpha_i·w_i over all clients, block by block; clients with alpha = 0 are ignored."""
    models = list(models)
    size = sum(value.numel() for value in models[0].values()) if models else 0
    large = size * np.count_nonzero(alpha) >= _WORTH_THREADS and numba_version() is not None
    return _in_columns(alpha, models) if large else _one_by_one(alpha, models)


def _one_by_one(alpha: Array, models: list[Parameters]) -> Sum:
    total = Sum()
    for block in blocks(len(alpha)):
        part = Sum()
        for i in block:
            if alpha[i] != 0:
                part.add(float(alpha[i]), models[i])
        total.merge(part)
    return total


def _in_columns(alpha: Array, models: list[Parameters]) -> Sum:
    """The same bytes as `_one_by_one`, for large models: all clients at a few coordinates, then at the next ones.

    Threads share the coordinates. The sums stay in the cache, so memory traffic is one read of every model.
    """
    from fedalpha.fast.kernels import add_blocks

    names = list(models[0])
    others = {name for name, value in models[0].items() if value.dtype != torch.float32}
    total = _one_by_one(alpha, [{name: m[name] for name in others} for m in models])
    counted = alpha != 0
    ends = np.cumsum([counted[block.start : block.stop].sum() for block in blocks(len(alpha))])
    models = [model for model, counts in zip(models, counted.tolist(), strict=True) if counts]
    threads = os.cpu_count() or 1
    with ThreadPoolExecutor(threads) as pool:
        for name, first in models[0].items():
            if name in others:
                continue
            if any(name not in m or m[name].shape != first.shape for m in models):
                raise ValueError(f"a client's tensor {name!r} is missing or of another shape than the others'")
            values = [m[name].detach().to("cpu", torch.float32).contiguous() for m in models]
            addresses = np.array([value.data_ptr() for value in values], dtype=np.uint64)
            total.values[name] = torch.zeros(first.shape, dtype=torch.float64)
            flat = total.values[name].view(-1).numpy()
            cuts = np.linspace(0, len(flat), threads + 1).astype(int).tolist()
            work = [pool.submit(add_blocks, addresses, alpha[counted], ends, a, b, flat) for a, b in pairwise(cuts)]
            for done in work:
                done.result()
    total.values = {name: total.values[name] for name in names}
    total.heaviest = float(alpha.max())
    return total
