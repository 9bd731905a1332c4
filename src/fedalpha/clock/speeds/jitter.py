"""Times that differ from round to round."""

from __future__ import annotations

from dataclasses import field

import numpy as np

from fedalpha.clock.speeds.base import CLOCKS, Moment, Wrapped, normal
from fedalpha.select.base import Ids
from fedalpha.strategies import Array
from fedalpha.strategies.arguments import positive


@CLOCKS.register(
    formula="the clock's seconds times exp(sigma·z), z standard normal for each client and round",
    examples=("jitter(lognormal(sigma=1), sigma=0.2)",),
)
class jitter(Wrapped):
    """The time of a client varies from round to round."""

    sigma: float = field(default=0.2, metadata={"always": True})

    def __post_init__(self) -> None:
        super().__post_init__()
        if positive("jitter", "sigma", self.sigma) > 20:
            raise ValueError(f"jitter: sigma = {self.sigma}; give at most 20")

    def seconds(self, moment: Moment, ids: Ids) -> Array:
        factor = np.exp(self.sigma * normal(moment, "jitter", ids, each_round=True))
        return np.asarray(super().seconds(moment, ids) * factor)
