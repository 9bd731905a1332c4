"""Layers that give the same bits in less time.

`quicken` replaces, in a module that is about to be trained on a CPU, 2×2 max pooling (and a ReLU before or after it
in a ``Sequential``) by one compiled pass over channels-last memory. Both orders are the same function, gradients
included: ReLU is monotone, and a window whose maximum is not positive passes no gradient. Names and parameters stay.
Without the package ``numba`` (``pip install "fedalpha[fast]"``) nothing is replaced and nothing else changes.
"""

from __future__ import annotations

import importlib.util
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, pad

COMPILED = importlib.util.find_spec("numba") is not None
"""Whether compiled loops can be used; without them the same bits take longer."""


def quicken(module: nn.Module) -> None:
    """Replace what can be computed faster to the same bits, in place."""
    if not COMPILED:
        return
    for parent in list(module.modules()):
        if isinstance(parent, nn.Sequential):
            for (name, layer), (following, after) in pairwise(list(parent.named_children())):
                if {type(layer), type(after)} == {nn.MaxPool2d, nn.ReLU} and _plain(layer) and _plain(after):
                    parent._modules[name], parent._modules[following] = Pool(relu=True), nn.Identity()
        for name, child in list(parent.named_children()):
            if type(child) is nn.MaxPool2d and _plain(child):
                parent._modules[name] = Pool(relu=False)


def _plain(layer: nn.Module) -> bool:
    """A ReLU, or pooling of 2×2 windows side by side, that nobody watches."""
    if layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks:
        return False
    if isinstance(layer, nn.MaxPool2d):
        sizes = {layer.kernel_size, layer.stride} <= {2, (2, 2)}
        flat = layer.padding in (0, (0, 0)) and layer.dilation in (1, (1, 1))
        return sizes and flat and not layer.ceil_mode and not layer.return_indices
    return True


class Pool(nn.Module):
    """2×2 max pooling, with ReLU if ``relu``."""

    def __init__(self, relu: bool) -> None:
        super().__init__()
        self.relu = relu

    def forward(self, x: Tensor) -> Tensor:
        fits = x.dim() == 4 and x.dtype == torch.float32 and x.device.type == "cpu" and min(x.shape[2:]) > 1
        if fits and x.is_contiguous(memory_format=torch.channels_last):
            pooled: Tensor = _Pooling.apply(x, self.relu)  # type: ignore[no-untyped-call]
            return pooled
        pooled = max_pool2d(x, 2)
        return pooled.relu() if self.relu else pooled


class _Pooling(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, relu: bool) -> Tensor:
        from fedalpha.kernels import pool

        samples, channels, rows, columns = x.shape
        ctx.shape = x.shape
        shape = (samples, channels, rows // 2, columns // 2)
        out = torch.empty(shape, memory_format=torch.channels_last)
        place = torch.empty(shape, dtype=torch.uint8, memory_format=torch.channels_last)
        pool(_lines(x), _lines(out), _lines(place), relu)
        ctx.save_for_backward(place)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        from fedalpha.kernels import spread

        (place,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody differentiates twice
            samples, channels, rows, columns = gradient.shape
            parts = torch.stack([torch.where(place == at, gradient, 0.0) for at in range(4)])
            windows = parts.view(2, 2, *gradient.shape).permute(2, 3, 4, 0, 5, 1)
            whole = windows.reshape(samples, channels, 2 * rows, 2 * columns)
            return pad(whole, (0, ctx.shape[3] - 2 * columns, 0, ctx.shape[2] - 2 * rows)), None
        out = torch.empty(ctx.shape, memory_format=torch.channels_last)
        spread(_lines(gradient.contiguous(memory_format=torch.channels_last)), _lines(place), _lines(out))
        return out, None


def _lines(x: Tensor) -> Any:
    """The memory of a channels-last tensor as an array (sample, row, column, channel)."""
    return x.detach().permute(0, 2, 3, 1).numpy()
