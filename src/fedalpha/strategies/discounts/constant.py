"""No discount."""

from __future__ import annotations

import numpy as np

from fedalpha.strategies.discounts.base import DISCOUNTS, Discount
from fedalpha.strategies.simplex import Array


@DISCOUNTS.register(formula="s(τ) = 1", reference="Xie et al., 2019, 1903.03934")
class constant(Discount):
    """Stale updates have the same weight as others."""

    def factors(self, staleness: Array) -> Array:
        return np.ones(len(staleness))
