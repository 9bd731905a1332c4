"""Σ alpha_i·w_i in float64, in an order that depends on the cohort alone.

The id-sorted cohort is cut into fixed blocks; each block is summed in id order, the blocks are
merged in block order. Workers and machines may compute blocks in any order and anywhere: the
bytes are the same. Products are rounded before they are added (no fused multiply-add, which torch
uses or not depending on the processor and the place in the array), so `fedalpha.flower.sums`, which
does the same in NumPy, gives the same bytes too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from fedalpha.blocks import blocks
from fedalpha.models import Parameters
from fedalpha.strategies import Array

_PIECE = 1 << 15


class Sum:
    """A running Σ alpha_i·w_i: floats in float64; integer buffers come from the heaviest client."""

    def __init__(self) -> None:
        self.values: Parameters = {}
        self.heaviest = -1.0

    def add(self, alpha: float, parameters: Parameters) -> None:
        """Add one client's model; one of another form is an error (torch would broadcast it silently)."""
        for name, value in self.values.items():
            if name not in parameters or parameters[name].shape != value.shape:
                raise ValueError(f"a client's tensor {name!r} is missing or of another shape than the others'")
        for name, value in parameters.items():
            if value.is_floating_point():
                if name not in self.values:
                    self.values[name] = torch.zeros(value.shape, dtype=torch.float64)
                _accumulate(self.values[name], value.detach().to("cpu"), alpha)
            elif alpha > self.heaviest:
                self.values[name] = value.to("cpu", copy=True)
        self.heaviest = max(self.heaviest, alpha)

    def merge(self, other: Sum) -> None:
        """Add the sum of a later block."""
        for name, value in other.values.items():
            if name not in self.values:
                self.values[name] = value.clone()
            elif value.is_floating_point():
                self.values[name].add_(value)
            elif other.heaviest > self.heaviest:
                self.values[name] = value.clone()
        self.heaviest = max(self.heaviest, other.heaviest)


def _accumulate(total: Tensor, value: Tensor, alpha: float) -> None:
    """total += alpha·value, in pieces whose float64 copies stay in the processor's cache."""
    pieces = zip(torch.split(total.view(-1), _PIECE), torch.split(value.reshape(-1), _PIECE), strict=True)
    for mine, theirs in pieces:
        mine.add_(theirs.double().mul_(alpha))


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
