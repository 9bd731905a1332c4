"""A polynomial discount."""

from __future__ import annotations

from dataclasses import field

import numpy as np

from fedalpha.strategies.arguments import positive
from fedalpha.strategies.discounts.base import DISCOUNTS, Discount
from fedalpha.strategies.simplex import Array


@DISCOUNTS.register(
    formula="s(τ) = (1 + τ)^(−a)",
    reference="Xie et al., 2019, 1903.03934; a = 0.5: Nguyen et al., 2022, 2106.06639",
    examples=("polynomial(a=0.5)",),
)
class polynomial(Discount):
    """A power of the staleness: with a = 0.5 an update that is three versions old has half of its weight."""

    a: float = field(default=0.5, metadata={"always": True})

    def __post_init__(self) -> None:
        if positive("polynomial", "a", self.a) > 20:
            raise ValueError(f"polynomial: a = {self.a}; give at most 20")

    def factors(self, staleness: Array) -> Array:
        return np.asarray((1 + staleness) ** -self.a)
