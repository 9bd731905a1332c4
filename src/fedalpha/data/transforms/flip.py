"""Pictures that are mirrored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedalpha.data.transforms.base import TRANSFORMS, Transform

if TYPE_CHECKING:
    from torch import Tensor


@TRANSFORMS.register(formula="left ↔ right with probability p", reference="Krizhevsky, Sutskever, Hinton, 2012")
class flip(Transform):
    """Mirrors each picture left to right, with probability ``p``."""

    p: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise ValueError(f"flip: p = {self.p!r}; give a probability")

    def __call__(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        import torch

        if x.dim() != 4:
            raise ValueError(
                f"flip needs pictures (channels × height × width), not samples of shape {tuple(x.shape[1:])}"
            )
        flipped = torch.from_numpy(rng.random(len(x)) < self.p).to(x.device)
        return torch.where(flipped[:, None, None, None], x.flip(-1), x)
