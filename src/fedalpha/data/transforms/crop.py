"""Pictures that are moved a little."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedalpha.data.transforms.base import TRANSFORMS, Transform

if TYPE_CHECKING:
    from torch import Tensor


@TRANSFORMS.register(
    formula="pad by ``padding`` pixels on each side, then cut a window of the old size at a random place",
    reference="Krizhevsky, Sutskever, Hinton, 2012",
    examples=("crop(padding=4)", "crop(padding=2, edge=reflect)"),
)
class crop(Transform):
    """Moves each picture by up to ``padding`` pixels; what comes into view is 0 or, with ``edge=reflect``, mirrored."""

    padding: int = field(default=4, metadata={"always": True})
    edge: Literal["zero", "reflect"] = "zero"

    def __post_init__(self) -> None:
        if isinstance(self.padding, bool) or not isinstance(self.padding, int) or self.padding < 1:
            raise ValueError(f"crop: padding = {self.padding!r}; give a number of pixels ≥ 1")
        if self.edge not in ("zero", "reflect"):
            raise ValueError(f"crop: edge = {self.edge!r} is not one of zero, reflect")

    def __call__(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        import torch
        from torch.nn.functional import pad

        if x.dim() != 4:
            raise ValueError(
                f"crop needs pictures (channels × height × width), not samples of shape {tuple(x.shape[1:])}"
            )
        wide = pad(x, [self.padding] * 4, mode="constant" if self.edge == "zero" else "reflect")
        top, left = torch.from_numpy(rng.integers(0, 2 * self.padding + 1, (2, len(x)))).to(x.device)
        rows = (top[:, None] + torch.arange(x.shape[2], device=x.device))[:, :, None]
        columns = (left[:, None] + torch.arange(x.shape[3], device=x.device))[:, None, :]
        samples = torch.arange(len(x), device=x.device)[:, None, None]
        return wide.permute(0, 2, 3, 1)[samples, rows, columns].permute(0, 3, 1, 2)
