"""State dicts in flat memory that several processes share."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedalpha.models import Parameters

_ALIGNMENT = 64


@dataclass(frozen=True)
class Layout:
    """Where each tensor of a state dict lies in a byte buffer."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]

    @staticmethod
    def of(parameters: Parameters, wide: bool = False) -> Layout:
        """The layout of ``parameters``; ``wide`` turns floats into float64, as sums are kept."""
        return Layout(
            tuple(parameters),
            tuple(tuple(t.shape) for t in parameters.values()),
            tuple(torch.float64 if wide and t.is_floating_point() else t.dtype for t in parameters.values()),
        )

    @property
    def nbytes(self) -> int:
        return sum(self._padded(s, d) for s, d in zip(self.shapes, self.dtypes, strict=True))

    def views(self, buffer: Tensor) -> Parameters:
        """Tensors that share memory with a uint8 ``buffer``."""
        views, start = {}, 0
        for name, shape, dtype in zip(self.names, self.shapes, self.dtypes, strict=True):
            end = start + math.prod(shape) * dtype.itemsize
            views[name] = buffer[start:end].view(dtype).view(shape)
            start += self._padded(shape, dtype)
        return views

    @staticmethod
    def _padded(shape: tuple[int, ...], dtype: torch.dtype) -> int:
        return math.ceil(math.prod(shape) * dtype.itemsize / _ALIGNMENT) * _ALIGNMENT


def copy_into(target: Parameters, source: Parameters) -> None:
    """Copy every tensor of ``source`` over its namesake."""
    for name, value in source.items():
        target[name].copy_(value)
