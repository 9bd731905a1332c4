"""Exponential speeds."""

from __future__ import annotations

import sys

import numpy as np

from fedalpha.clock.speeds.base import CLOCKS, Drawn
from fedalpha.strategies.arguments import positive


@CLOCKS.register(
    formula="``least`` plus an exponential time of this ``mean``, drawn for each client",
    reference="the shifted exponential model of Lee et al., 2018, 1512.02673",
    examples=("exponential(mean=1)", "exponential(mean=2, least=0.5)"),
)
class exponential(Drawn):
    """A client takes at least ``least`` seconds, and ``mean`` more on average."""

    mean: float = 1.0
    least: float = 0.0

    def __post_init__(self) -> None:
        positive("exponential", "mean", self.mean)
        if self.least != 0:
            positive("exponential", "least", self.least)

    def draw(self, rng: np.random.Generator) -> float:
        return max(self.least + self.mean * rng.standard_exponential(), sys.float_info.min)
