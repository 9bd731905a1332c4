"""Seconds per sample."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedalpha.clock.speeds.base import CLOCKS, Moment, Wrapped, whole_population
from fedalpha.select.base import Ids
from fedalpha.strategies import Array


@CLOCKS.register(
    formula="the clock's seconds times the client's number of samples",
    examples=("per_sample(lognormal(sigma=1, median=0.01))",),
)
class per_sample(Wrapped):
    """A client with more data takes longer; the inner clock gives its seconds per sample."""

    def seconds(self, moment: Moment, ids: Ids) -> Array:
        return np.asarray(super().seconds(moment, ids) * np.maximum(moment.population.sizes(ids), 1.0))

    def check(self, population: Any) -> None:
        super().check(population)
        everybody = whole_population(Moment(0, 0, population))
        if np.isnan(population.sizes(everybody)).any():
            raise ValueError("per_sample needs the sizes of all clients, and some are not known")
