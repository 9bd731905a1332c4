"""Old updates hardly count."""

import numpy as np

from fedalpha.strategies import Array
from fedalpha.strategies.discounts import DISCOUNTS, Discount


@DISCOUNTS.register(formula="s(τ) = 1 up to τ = most, then ``rest``", examples=("cutoff(most=2)",))
class cutoff(Discount):
    """Updates up to a staleness of ``most`` count in full, older ones ``rest``."""

    most: int = 2
    rest: float = 0.01

    def __post_init__(self) -> None:
        if not 0 < self.rest <= 1:
            raise ValueError(f"cutoff: rest = {self.rest}; give a number in (0, 1]")

    def factors(self, staleness: Array) -> Array:
        return np.where(staleness <= self.most, 1.0, self.rest)
