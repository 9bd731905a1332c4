"""Several transforms."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np

from fedalpha.data.transforms.base import TRANSFORMS, Transform

if TYPE_CHECKING:
    from torch import Tensor


@TRANSFORMS.register(
    formula="one after the other", reference="as in torchvision's Compose", examples=("chain(crop(padding=4), flip)",)
)
class chain(Transform):
    """Several transforms, one after the other."""

    parts: tuple[Transform, ...] = field(default=(), metadata={"positional": True})

    def __init__(self, *parts: Transform | str) -> None:
        if not parts:
            raise ValueError("chain: give at least one transform, such as chain(crop(padding=4), flip)")
        object.__setattr__(self, "parts", tuple(TRANSFORMS.parse(part) for part in parts))

    def __call__(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        for part in self.parts:
            x = part(x, rng)
        return x
