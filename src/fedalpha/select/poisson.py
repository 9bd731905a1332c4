"""Poisson sampling: every client takes part by a coin of its own, which is what amplification by sampling needs."""

from __future__ import annotations

import numpy as np

from fedalpha.select.base import SELECTIONS, Ids, Population, Select
from fedalpha.strategies import Array, State
from fedalpha.text import whole


@SELECTIONS.register(
    formula="each client with probability C, independently of the others",
    reference="amplification by sampling: Mironov, Talwar and Zhang, 2019, 1908.10530",
    examples=("poisson(C=0.5)", "poisson(C=0.5, least=3)"),
)
class poisson(Select):
    """Each client with probability C, independently; cohorts of fewer than ``least`` clients are drawn again.

    Drawing again is what a round needs, and not Poisson sampling: `fedalpha.defence.privacy.epsilon` takes ``clients``
    and ``least`` to account for it. It costs nothing that can be seen where such cohorts are unlikely.
    """

    C: float = 0.1
    least: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.C <= 1:
            raise ValueError(f"{self.text_name}: C = {self.C}; give the probability of each client, in (0, 1]")
        whole(f"{self.text_name}: least", self.least, least=1)

    @property
    def against_absence(self) -> str:
        return "each client must take part with the same chance in every round, and clients that are away cannot"

    def chances(self, population: Population) -> Array:
        return np.full(population.clients, self.C)

    def select(
        self, state: State, population: Population, losses: Array | None, rng: np.random.Generator
    ) -> tuple[Ids, State]:
        n = population.clients
        if self.C * n < self.least / 10 or self.least > n:
            raise ValueError(f"{self}: {n} clients give cohorts of {self.C * n:g} on average; raise C, or lower least")
        while True:
            drawn = np.flatnonzero(rng.random(n) < self.C)
            if len(drawn) >= self.least:
                return population.named(drawn), state
