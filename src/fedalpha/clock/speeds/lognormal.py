"""Log-normal speeds: most clients are alike, and a few are very slow."""

from __future__ import annotations

import math

import numpy as np

from fedalpha.clock.speeds.base import CLOCKS, Drawn
from fedalpha.strategies.arguments import positive


@CLOCKS.register(
    formula="median·exp(sigma·z_i), z_i standard normal for each client",
    examples=("lognormal(sigma=1)", "lognormal(sigma=0.5, median=10)"),
)
class lognormal(Drawn):
    """Half of the clients take longer than ``median`` seconds; ``sigma`` is the spread of the logarithm."""

    sigma: float = 1.0
    median: float = 1.0

    def __post_init__(self) -> None:
        positive("lognormal", "median", self.median)
        if positive("lognormal", "sigma", self.sigma) > 20:
            raise ValueError(f"lognormal: sigma = {self.sigma}; give at most 20")

    def draw(self, rng: np.random.Generator) -> float:
        return self.median * math.exp(self.sigma * rng.standard_normal())
