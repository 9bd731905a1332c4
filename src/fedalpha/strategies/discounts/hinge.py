"""A discount that begins at a given staleness."""

from __future__ import annotations

from dataclasses import field

import numpy as np

from fedalpha.strategies.arguments import positive
from fedalpha.strategies.discounts.base import DISCOUNTS, Discount
from fedalpha.strategies.simplex import Array


@DISCOUNTS.register(
    formula="s(τ) = 1 up to τ = b, then 1/(a·(τ − b) + 1)",
    reference="Xie et al., 2019, 1903.03934",
    examples=("hinge(a=10, b=4)",),
)
class hinge(Discount):
    """Updates have their full weight up to a staleness of b; after that the weight decreases quickly."""

    a: float = field(default=10.0, metadata={"always": True})
    b: float = field(default=4.0, metadata={"always": True})

    def __post_init__(self) -> None:
        positive("hinge", "a", self.a)
        positive("hinge", "b", self.b, zero=True)

    def factors(self, staleness: Array) -> Array:
        return np.asarray(1 / (self.a * np.maximum(staleness - self.b, 0.0) + 1))
