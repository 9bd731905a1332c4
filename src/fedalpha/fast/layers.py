"""Faster layers.

`quicken` replaces, in a module that is about to be trained on a CPU, 2×2 max pooling (and a ReLU before or after it
in a ``Sequential``) by one compiled pass over channels-last memory, with the same bits as torch. Both orders are the
same function, gradients included: ReLU is monotone, and a window whose maximum is not positive passes no gradient.

A 3×3 convolution of grey images is merged with such a pooling after it: the values before pooling are never stored,
and only the maxima have a gradient. It agrees with torch up to rounding.

Pooling leaves out the last row and column of an odd image. If a convolution lies between two such poolings, the first
one does not compute what the second would never see.

Names and parameters do not change. Without the package ``numba`` (``pip install "fedalpha[fast]"``) nothing is
replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, max_pool2d, pad
from torch.nn.grad import conv2d_weight

from fedalpha.fast.compiled import numba_version

Kernel = tuple[int, int]
"""Rows and columns of a convolution's kernel."""


def quicken(module: nn.Module) -> None:
    """Replace what can be computed faster, in place."""
    if numba_version() is None:
        return
    for parent in list(module.modules()):
        if _sequence(parent):
            for (name, layer), (following, after) in pairwise(list(parent.named_children())):
                if {type(layer), type(after)} == {nn.MaxPool2d, nn.ReLU} and _plain(layer) and _plain(after):
                    parent._modules[name], parent._modules[following] = Pool(relu=True), nn.Identity()
        for name, child in list(parent.named_children()):
            if type(child) is nn.MaxPool2d and _plain(child):
                parent._modules[name] = Pool(relu=False)
        if _sequence(parent):
            for (name, layer), (following, after) in pairwise(list(parent.named_children())):
                if type(layer) is nn.Conv2d and _grey(layer) and isinstance(after, Pool):
                    parent._modules[name], parent._modules[following] = PooledConv(layer, after), nn.Identity()
            stages = [layer for layer in parent if type(layer) is not nn.Identity or _watched(layer)]
            for first, between, second in zip(stages, stages[1:], stages[2:], strict=False):
                pool = first.pool if isinstance(first, PooledConv) else first
                if isinstance(pool, Pool) and _unpadded(between) and isinstance(second, Pool):
                    pool.followed_by = between.kernel_size  # type: ignore[assignment]


def _sequence(module: nn.Module) -> TypeGuard[nn.Sequential]:
    """Whether the layers run one after the other, as in a plain ``Sequential``."""
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward


def _watched(layer: nn.Module) -> bool:
    """Whether the layer has hooks, which must still be called."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return any(hooks)


def _unpadded(layer: nn.Module) -> bool:
    """Whether the layer is a convolution over every window inside the image, without hooks."""
    if type(layer) is not nn.Conv2d or _watched(layer):
        return False
    return layer.stride == (1, 1) and layer.padding in ((0, 0), "valid") and layer.dilation == (1, 1)


def _grey(layer: nn.Conv2d) -> bool:
    """Whether the layer is a plain 3×3 convolution of one channel."""
    return _unpadded(layer) and layer.in_channels == 1 and layer.kernel_size == (3, 3)


def _plain(layer: nn.Module) -> bool:
    """Whether a ReLU or pooling layer has no hooks, and pooling is over 2×2 windows side by side."""
    if _watched(layer):
        return False
    if isinstance(layer, nn.MaxPool2d):
        sizes = {layer.kernel_size, layer.stride} <= {2, (2, 2)}
        flat = layer.padding in (0, (0, 0)) and layer.dilation in (1, (1, 1))
        return sizes and flat and not layer.ceil_mode and not layer.return_indices
    return True


class Pool(nn.Module):
    """2×2 max pooling, with ReLU if ``relu``.

    ``followed_by``: the kernel of a convolution that follows and is pooled in turn.
    """

    def __init__(self, relu: bool) -> None:
        super().__init__()
        self.relu = relu
        self.followed_by: Kernel | None = None

    def forward(self, x: Tensor) -> Tensor:
        fits = x.dim() == 4 and _common(x) and min(x.shape[2:]) > 1
        if fits and x.is_contiguous(memory_format=torch.channels_last):
            pooled: Tensor = _Pooling.apply(x, self.relu, self.followed_by)  # type: ignore[no-untyped-call]
            return pooled
        pooled = max_pool2d(x, 2)
        return pooled.relu() if self.relu else pooled


class PooledConv(nn.Module):
    """A 3×3 convolution of one channel and the pooling that follows, with the convolution's parameters."""

    def __init__(self, conv: nn.Conv2d, pool: Pool) -> None:
        super().__init__()
        self.weight, self.bias = conv.weight, conv.bias
        self.pool = pool

    def forward(self, x: Tensor) -> Tensor:
        fits = x.dim() == 4 and x.shape[1] == 1 and not x.requires_grad
        fits = fits and all(t is None or _common(t) for t in (x, self.weight, self.bias))
        if fits and min(x.shape[2:]) > 3:
            arguments = (x, self.weight, self.bias, self.pool.relu, self.pool.followed_by)
            pooled: Tensor = _PooledConvolution.apply(*arguments)  # type: ignore[no-untyped-call]
            return pooled
        return self.pool(conv2d(x, self.weight, self.bias))  # type: ignore[no-any-return]


def _common(x: Tensor) -> bool:
    return x.dtype == torch.float32 and x.device.type == "cpu"


class _Pooling(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, relu: bool, followed_by: Kernel | None) -> Tensor:
        from fedalpha.fast.kernels import pool

        samples, channels, rows, columns = x.shape
        ctx.shape = x.shape
        out, place = _windows(samples, channels, rows // 2, columns // 2, followed_by, torch.uint8)
        pool(_lines(x), _lines(out), _lines(place), relu)
        ctx.save_for_backward(place)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        from fedalpha.fast.kernels import spread

        (place,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # second derivatives are asked for
            return _spread(gradient, place, ctx.shape), None, None
        out = torch.empty(ctx.shape, memory_format=torch.channels_last)
        spread(_lines(gradient.contiguous(memory_format=torch.channels_last)), _lines(place), _lines(out))
        return out, None, None


class _PooledConvolution(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool, followed_by: Kernel | None
    ) -> Tensor:
        from fedalpha.fast.kernels import convolve_and_pool

        channels, (rows, columns) = len(weight), x.shape[2:]
        ctx.shape = (len(x), channels, rows - 2, columns - 2)
        out, place = _windows(len(x), channels, rows // 2 - 1, columns // 2 - 1, followed_by, torch.int32)
        if not any(ctx.needs_input_grad):
            place = torch.empty(1, channels, 1, 1, dtype=torch.int32)
        table = torch.zeros(10, channels)
        table[:9] = weight.view(channels, 9).t()
        if bias is not None:
            table[9] = bias
        convolve_and_pool(x[:, 0].contiguous().numpy(), table.numpy(), _lines(out), _lines(place), relu)
        ctx.save_for_backward(x, place)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, Tensor | None, None, None]:
        from fedalpha.fast.kernels import weigh_patches

        x, place = ctx.saved_tensors
        channels = gradient.shape[1]
        if torch.is_grad_enabled():  # second derivatives are asked for
            whole = _spread(gradient, place, ctx.shape)
            slope: Tensor = conv2d_weight(x, (channels, 1, 3, 3), whole)  # type: ignore[no-untyped-call]
            return None, slope, whole.sum((0, 2, 3)) if ctx.needs_input_grad[2] else None, None, None
        table = torch.zeros(10, channels)
        lines = _lines(gradient.contiguous(memory_format=torch.channels_last))
        weigh_patches(x[:, 0].contiguous().numpy(), lines, _lines(place), table.numpy())
        return None, table[:9].t().reshape(-1, 1, 3, 3), table[9] if ctx.needs_input_grad[2] else None, None, None


def _windows(
    samples: int, channels: int, rows: int, columns: int, followed_by: Kernel | None, kind: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Empty tensors for the maxima of the windows that are used, and for their places (with dtype ``kind``)."""
    if followed_by is not None:
        rows, columns = (s - (s - k + 1) % 2 if s > k else s for s, k in zip((rows, columns), followed_by, strict=True))
    shape = (samples, channels, rows, columns)
    out = torch.empty(shape, memory_format=torch.channels_last)
    return out, torch.empty(shape, dtype=kind, memory_format=torch.channels_last)


def _spread(gradient: Tensor, place: Tensor, shape: Sequence[int]) -> Tensor:
    """The gradient of pooling by operations that can be differentiated."""
    samples, channels, rows, columns = gradient.shape
    parts = torch.stack([torch.where(place == at, gradient, 0.0) for at in range(4)])
    windows = parts.view(2, 2, *gradient.shape).permute(2, 3, 4, 0, 5, 1)
    whole = windows.reshape(samples, channels, 2 * rows, 2 * columns)
    return pad(whole, (0, shape[3] - 2 * columns, 0, shape[2] - 2 * rows))


def _lines(x: Tensor) -> Any:
    """The memory of a channels-last tensor as an array (sample, row, column, channel)."""
    return x.detach().permute(0, 2, 3, 1).numpy()
