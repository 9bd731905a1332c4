"""Samples with their axes swapped."""

import numpy as np
import torch
from torch import Tensor

from fedalpha.data.transforms import TRANSFORMS, Transform


@TRANSFORMS.register(formula="(a, b, …) → (…, b, a) with probability p", reference="docs/extending.md")
class swap(Transform):
    """Reverses the values of each sample, with probability ``p``."""

    p: float = 0.5

    def __call__(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        reversed_ = torch.from_numpy(rng.random(len(x)) < self.p)
        return torch.where(reversed_.view(-1, *[1] * (x.dim() - 1)), x.flip(1), x)
