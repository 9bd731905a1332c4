"""Samples with noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedalpha.data.transforms.base import TRANSFORMS, Transform

if TYPE_CHECKING:
    from torch import Tensor


@TRANSFORMS.register(formula="x + deviation·N(0, 1)", reference="Bishop, 1995", examples=("jitter(deviation=0.1)",))
class jitter(Transform):
    """Adds Gaussian noise to every value."""

    deviation: float = 0.1

    def __post_init__(self) -> None:
        if not self.deviation >= 0:
            raise ValueError(f"jitter: deviation = {self.deviation!r}; give a number ≥ 0")

    def __call__(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        import torch

        noise = torch.from_numpy(rng.standard_normal(tuple(x.shape), dtype=np.float32)).to(x.device, x.dtype)
        return x + self.deviation * noise
