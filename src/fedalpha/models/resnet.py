"""Residual networks for small pictures, with group norm or batch norm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn
from torch.nn.functional import relu

from fedalpha.models.base import MODELS, Model


@MODELS.register(
    formula="conv 3×3 → 3 stages of (depth − 2)/6 residual blocks (width, 2·width, 4·width) → mean → linear",
    reference="He et al., 2016, 1512.03385; group norm: Wu, He, 2018, 1803.08494, Hsieh et al., 2020, 1910.00189",
    examples=("resnet", "resnet(norm=batch)", "resnet(depth=20)"),
)
class resnet(Model):
    """The residual network for CIFAR-10 of ``depth`` 6n + 2, by default a small one of 8 layers.

    ``norm``: group (8 groups, of 2 channels at least) or batch. Batch norm keeps running statistics that depend on
    each client's labels, so label skew harms it.

    >>> sum(p.numel() for p in resnet().layers((3, 32, 32), 10).parameters())
    78042
    """

    depth: int = 8
    width: int = 16
    norm: Literal["group", "batch"] = "group"

    def __post_init__(self) -> None:
        if not isinstance(self.depth, int) or self.depth < 8 or (self.depth - 2) % 6:
            raise ValueError(f"resnet: depth = {self.depth!r}; give 8, 14, 20 … (6n + 2)")
        if not isinstance(self.width, int) or self.width < 8 or self.width % 8:
            raise ValueError(f"resnet: width = {self.width!r}; give a multiple of 8")
        if self.norm not in ("group", "batch"):
            raise ValueError(f"resnet: norm = {self.norm!r} is not one of group, batch")

    def layers(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        if len(shape) != 3 or min(shape[1:]) < 8:
            raise ValueError(
                f"resnet needs images of at least 8×8 pixels, this data has shape {shape}; use mlp instead"
            )
        stages: list[nn.Module] = [
            nn.Conv2d(shape[0], self.width, 3, padding=1, bias=False),
            self._normed(self.width),
            nn.ReLU(),
        ]
        channels = self.width
        for stage in range(3):
            for block in range((self.depth - 2) // 6):
                wider = self.width * 2**stage
                stages.append(_Block(channels, wider, 2 if stage and not block else 1, self._normed))
                channels = wider
        return nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))

    def _normed(self, channels: int) -> nn.Module:
        return nn.GroupNorm(min(8, channels // 2), channels) if self.norm == "group" else nn.BatchNorm2d(channels)


class _Block(nn.Module):
    """Two convolutions and a shortcut; where the shape changes, the shortcut is a 1×1 convolution."""

    def __init__(self, channels: int, wider: int, stride: int, normed: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, wider, 3, stride, 1, bias=False)
        self.norm1 = normed(wider)
        self.conv2 = nn.Conv2d(wider, wider, 3, 1, 1, bias=False)
        self.norm2 = normed(wider)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != wider:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, wider, 1, stride, bias=False), normed(wider))

    def forward(self, x: Tensor) -> Tensor:
        inner = relu(self.norm1(self.conv1(x)))
        return relu(self.norm2(self.conv2(inner)) + self.shortcut(x))
