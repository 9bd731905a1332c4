"""Uniform selection without replacement, the paper's Algorithm 1."""

from __future__ import annotations

import math

import numpy as np

from fedalpha.select.base import SELECTIONS, Ids, Population, Select
from fedalpha.strategies import Array, State


@SELECTIONS.register(
    formula="m = max(1, ⌊C·N⌋) clients without replacement; C = 1: everybody",
    reference="McMahan et al., 2017",
    examples=("uniform", "uniform(C=0.1)", "uniform(count=5)"),
)
class uniform(Select):
    """m = max(1, ⌊C·N⌋) random clients, or ``count`` random clients; all clients by default.

    >>> uniform(C=0.1).size(25)
    2
    """

    C: float = 1.0
    count: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.C <= 1:
            raise ValueError(f"{self.text_name}: C = {self.C}; give the share of clients that take part, in (0, 1]")
        if self.count is not None and (not isinstance(self.count, int) or self.count < 1):
            raise ValueError(f"{self.text_name}: count = {self.count!r}; give a number of clients, at least 1")

    def size(self, n: int) -> int:
        if self.count is not None:
            return min(self.count, n)
        return max(1, math.floor(self.C * n + 1e-9))

    def chances(self, population: Population) -> Array | None:
        if type(self).select is not uniform.select:  # a rule that derives from this one selects otherwise
            return None
        return np.full(population.clients, self.size(population.clients) / population.clients)

    def select(
        self, state: State, population: Population, losses: Array | None, rng: np.random.Generator
    ) -> tuple[Ids, State]:
        n, m = population.clients, self.size(population.clients)
        if m == n:
            return population.named(np.arange(n)), state
        return population.named(np.sort(rng.choice(n, size=m, replace=False, shuffle=False))), state
