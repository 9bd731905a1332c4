"""FedPAGE's cohorts: all clients in some rounds, a sample in the others."""

from __future__ import annotations

from dataclasses import field

import numpy as np

from fedalpha.select.base import SELECTIONS, Ids, Population
from fedalpha.select.uniform import uniform
from fedalpha.strategies import Array, State


def everybody(rng: np.random.Generator, p: float) -> bool:
    """Whether all clients take part: the first draw of the round's generator "cohort".

    The selection and the client update both call this, so that they decide alike.
    """
    return float(rng.random()) < p


@SELECTIONS.register(
    formula="with chance p, and in the first round, everybody; else m clients without replacement",
    reference="Zhao et al., 2021, 2108.04755",
    examples=("fedpage(C=0.1, p=0.1)", "fedpage(count=5, p=0.2)"),
)
class fedpage(uniform):
    """All clients with chance ``p``, else as `uniform`; for the client update of the same name, with the same ``p``.

    The client update uses the same random draw. PAGE's choice is p = m/(N + m), about C.
    """

    p: float = field(default=0.1, metadata={"always": True})

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.p, bool) or not 0 < self.p <= 1:
            raise ValueError(f"fedpage: p = {self.p!r}; give the chance of a round with all clients, in (0, 1]")

    @property
    def against_stale(self) -> str:
        return "in some rounds all clients take part, and a server that does not wait has no such rounds"

    def select(
        self, state: State, population: Population, losses: Array | None, rng: np.random.Generator
    ) -> tuple[Ids, State]:
        if everybody(rng, self.p) or not state:
            return population.named(np.arange(population.clients)), {"begun": True}
        return super().select(state, population, losses, rng)
