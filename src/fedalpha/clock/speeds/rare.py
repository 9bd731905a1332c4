"""Speeds that are correlated with the data: clients with rare classes are slow."""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any

import numpy as np

from fedalpha.clock.speeds.base import CLOCKS, Moment, Wrapped, normal, whole_population
from fedalpha.select.base import Ids
from fedalpha.strategies import Array


@CLOCKS.register(
    formula="the same seconds, given to the clients in the order of how rare their classes are",
    examples=("rare(lognormal(sigma=1))", "rare(exponential(mean=1), correlation=0.5)"),
)
class rare(Wrapped):
    """The clients whose classes are the rarest in the training data take the longest.

    The inner clock's seconds are redistributed among the clients. ``correlation`` is the correlation of
    the normal scores of rareness and of time: with 1 both have the same order, with 0 the seconds are distributed at
    random, and with −1 the clients with rare classes are the fastest. The rareness of a client's data is the mean of
    −log(share of the class in all training data) over its samples.
    """

    correlation: float = field(default=1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        value = self.correlation
        if isinstance(value, bool) or not isinstance(value, int | float) or not -1 <= value <= 1:
            raise ValueError(f"rare: correlation = {value!r}; give a number from -1 to 1")

    def seconds(self, moment: Moment, ids: Ids) -> Array:
        everybody = whole_population(moment)
        pool = np.sort(super().seconds(moment, everybody))
        rareness = _scores(_rareness(moment.population))
        score = self.correlation * rareness
        if abs(self.correlation) < 1:
            noise = normal(moment, "rare", everybody, each_round=False)
            score = score + math.sqrt(1 - self.correlation**2) * noise
        given = np.empty(len(pool))
        given[np.argsort(score, kind="stable")] = pool
        return np.asarray(given[np.searchsorted(everybody, ids)])

    def check(self, population: Any) -> None:
        super().check(population)
        if getattr(population, "label_counts", None) is None:
            raise ValueError(
                "rare needs the class counts of all clients, and this federation has none (targets that are not "
                "labels, or clients that are made on demand); leave rare(…) out"
            )


def _rareness(population: Any) -> Array:
    counts = np.asarray(population.label_counts, dtype=np.float64)
    shares = counts.sum(axis=0) / counts.sum()
    surprise = -np.log(np.where(shares > 0, shares, 1.0))
    return np.asarray(counts @ surprise / np.maximum(counts.sum(axis=1), 1.0))


def _scores(values: Array) -> Array:
    """Normal scores: the quantile of each value's rank. Equal values are ranked by their place."""
    from statistics import NormalDist

    places = np.empty(len(values))
    places[np.argsort(values, kind="stable")] = np.arange(len(values))
    return np.array([NormalDist().inv_cdf((place + 0.5) / len(values)) for place in places.tolist()])
