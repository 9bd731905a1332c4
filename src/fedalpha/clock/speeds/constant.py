"""Equal speeds."""

from __future__ import annotations

import numpy as np

from fedalpha.clock.speeds.base import CLOCKS, Drawn
from fedalpha.strategies.arguments import positive


@CLOCKS.register(formula="every client takes ``each`` seconds", examples=("constant", "constant(each=2)"))
class constant(Drawn):
    """Every client takes the same time in every round."""

    each: float = 1.0

    def __post_init__(self) -> None:
        positive("constant", "each", self.each)

    def draw(self, rng: np.random.Generator) -> float:
        return float(self.each)
