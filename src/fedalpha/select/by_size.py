"""Sampling in proportion to size: every client's chance to be selected is known, and ∝ its data."""

from __future__ import annotations

import math

import numpy as np

from fedalpha.select.base import SELECTIONS, Ids, Population
from fedalpha.select.uniform import uniform
from fedalpha.strategies import Array, State


def inclusion(sizes: Array, count: int) -> Array:
    """π_i = count·p_i where that is below 1; clients above it are certain, and the others share the other places.

    >>> inclusion(np.array([6.0, 2.0, 1.0, 1.0]), 2)
    array([1.  , 0.5 , 0.25, 0.25])
    """
    sure = np.zeros(len(sizes), dtype=bool)
    while True:
        rest, left = count - int(sure.sum()), math.fsum(sizes[~sure].tolist())
        chances = np.where(sure, 1.0, rest * sizes / left if left > 0 else 0.0)
        more = ~sure & (chances >= 1)
        if not more.any():
            return np.asarray(chances)
        sure |= more


def systematic(chances: Array, rng: np.random.Generator) -> Ids:
    """Sorted places of a sample in which each client is with its chance: equal steps through a random order."""
    sure = np.flatnonzero(chances >= 1)
    order = rng.permutation(np.flatnonzero((chances > 0) & (chances < 1)))
    count = round(math.fsum(chances[order].tolist()))
    if not count:
        return sure
    ends = np.cumsum(chances[order])
    points = (rng.random() + np.arange(count)) * (ends[-1] / count)
    drawn = order[np.minimum(np.searchsorted(ends, points, side="right"), len(order) - 1)]
    return np.union1d(sure, drawn)


@SELECTIONS.register(
    formula="m clients with chances π_i = m·p_i (1 where that is above 1): systematic sampling in a random order",
    reference="Madow, 1949; weights p_i/π_i: Horvitz & Thompson, 1952",
    examples=("by_size(C=0.1)", "by_size(count=5)"),
)
class by_size(uniform):
    """m clients, each with a chance in proportion to its data; use it with ``unbiased(…)``.

    The weights p_i/π_i are then the same for all clients but the largest ones, they sum to 1, and their mean over the
    draws is p. Uniform sampling has no such weights: FedAvg's weights within a uniform cohort are a biased
    estimate of p (docs/theory.md).
    """

    sizes_first = True

    def chances(self, population: Population) -> Array:
        sizes = population.sizes(population.named(np.arange(population.clients)))
        return inclusion(sizes, self.size(population.clients))

    def select(
        self, state: State, population: Population, losses: Array | None, rng: np.random.Generator
    ) -> tuple[Ids, State]:
        sizes = population.sizes(population.named(np.arange(population.clients)))
        if not np.nansum(sizes) > 0 or np.isnan(sizes).any():
            raise ValueError(
                "by_size needs the sizes of all clients, and some are not known: use uniform(C=…), or let clients tell "
                "their sizes first (examples= of add_loss_query on a live federation)"
            )
        return population.named(systematic(self.chances(population), rng)), state
