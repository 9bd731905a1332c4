"""Σ alpha_i·w_i in float64, in an order that depends on the cohort alone.

The id-sorted cohort is cut into fixed blocks; each block is summed in id order, the blocks are
merged in block order. Workers and machines may compute blocks in any order and anywhere: the
bytes are the same. Products are rounded before they are added (no fused multiply-add, which torch
uses or not depending on the processor and the place in the array), so `fedalpha.flower.sums`, which
does the same in NumPy, gives the same bytes too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from fedalpha.blocks import blocks
from fedalpha.layers import COMPILED
from fedalpha.models import Parameters
from fedalpha.strategies import Array

_PIECE = 1 << 15
_WORTH_COMPILING = 1 << 17
"""Smaller sums are formed before numba is imported."""


class Sum:
    """A running Σ alpha_i·w_i: floats in float64; integer buffers come from the heaviest client."""

    def __init__(self, values: Parameters | None = None, heaviest: float = -1.0) -> None:
        self.values: Parameters = {} if values is None else values
        self.heaviest = heaviest

    def copy(self) -> Sum:
        return Sum({name: value.clone() for name, value in self.values.items()}, self.heaviest)

    def add(self, alpha: float, parameters: Parameters) -> None:
        """Add one client's model; one of another form is an error (torch would broadcast it silently)."""
        self.add_stack([alpha], {name: value[None] for name, value in parameters.items()})

    def add_stack(self, alpha: Sequence[float], stacked: Parameters) -> None:
        """Add several clients' models that lie on top of each other, one after the other."""
        for name, value in self.values.items():
            if name not in stacked or stacked[name].shape[1:] != value.shape:
                raise ValueError(f"a client's tensor {name!r} is missing or of another shape than the others'")
        large = sum(value.numel() for value in stacked.values()) >= _WORTH_COMPILING
        for name, value in stacked.items():
            if value.is_floating_point():
                if name not in self.values:
                    self.values[name] = torch.zeros(value.shape[1:], dtype=torch.float64)
                _accumulate(self.values[name], value.detach().to("cpu"), alpha, COMPILED and large)
            else:
                heaviest = max(range(len(alpha)), key=alpha.__getitem__)
                if alpha[heaviest] > self.heaviest:
                    self.values[name] = value[heaviest].to("cpu", copy=True)
        self.heaviest = max(self.heaviest, *alpha)

    def merge(self, *others: Sum) -> None:
        """Add the sums of later blocks, in their order."""
        for other in others:
            for name, value in other.values.items():
                if name not in self.values:
                    self.values[name] = value.clone()
                elif value.is_floating_point():
                    self.values[name].add_(value)
                elif other.heaviest > self.heaviest:
                    self.values[name] = value.clone()
            self.heaviest = max(self.heaviest, other.heaviest)


def _accumulate(total: Tensor, values: Tensor, alpha: Sequence[float], compiled: bool) -> None:
    """total += alpha_i·values_i for each i, in pieces that stay in the processor's cache."""
    rows, flat = values.reshape(len(alpha), -1), total.view(-1)
    if compiled and rows.dtype == torch.float32:
        from fedalpha.kernels import accumulate

        accumulate(rows.numpy(), np.array(alpha), flat.numpy())
        return
    weights = torch.tensor(alpha, dtype=torch.float64)[:, None]
    for start in range(0, flat.numel(), _PIECE):
        piece = slice(start, start + _PIECE)
        for row, weight in zip(rows, weights, strict=True):
            flat[piece].add_(row[piece].to(torch.float64, copy=True).mul_(weight))  # also of what is float64 already


def weighted_sum(alpha: Array, models: Sequence[Parameters] | Iterable[Parameters]) -> Sum:
    """Σ alpha_i·w_i over all clients, block by block; clients with alpha = 0 are not looked at."""
    total = Sum()
    each = iter(zip(alpha.tolist(), models, strict=True))
    for block in blocks(len(alpha)):
        part = Sum()
        for _ in block:
            a, parameters = next(each)
            if a != 0:
                part.add(a, parameters)
        total.merge(part)
    return total
