"""One group of clients after another."""

import numpy as np

from fedalpha.select import SELECTIONS, Population, Select
from fedalpha.select.base import Ids
from fedalpha.strategies import Array, State


@SELECTIONS.register(formula="clients t·count … (t + 1)·count − 1, modulo N", examples=("round_robin(count=2)",))
class round_robin(Select):
    """The next ``count`` clients in the order of their ids. The state holds where the next round begins."""

    count: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.count, int) or self.count < 1:
            raise ValueError(f"round_robin: count = {self.count!r}; give a number of clients, at least 1")

    def init(self, n: int | None = None) -> State:
        return {"next": 0}

    def select(
        self, state: State, population: Population, losses: Array | None, rng: np.random.Generator
    ) -> tuple[Ids, State]:
        n, first = population.clients, state["next"]
        places = (first + np.arange(min(self.count, n))) % n
        return population.named(np.sort(places)), {"next": (first + self.count) % n}
