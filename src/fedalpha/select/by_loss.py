"""Selections that look at losses: Power-of-Choice and loss-proportional sampling.

Both favour clients with large losses, which are measured before training. Power-of-Choice asks d clients
(or none, with stale losses); loss-proportional sampling asks all clients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field

import numpy as np

from fedalpha.select.base import SELECTIONS, Ids, Population, Question
from fedalpha.select.uniform import uniform
from fedalpha.strategies import Array, State
from fedalpha.strategies.memory import recall, remember


def draw(rng: np.random.Generator, chances: Array, count: int) -> Ids:
    """``count`` different clients (fewer if fewer have a positive chance), drawn in proportion to ``chances``."""
    count = min(count, int((chances > 0).sum()))
    return rng.choice(len(chances), size=count, replace=False, p=chances / chances.sum())


def by_now(sizes: Array) -> Array:
    """Sizes, of which those that are not known yet count as the mean of the others, or as 1 if that is 0.

    >>> by_now(np.array([10.0, np.nan, 30.0])), by_now(np.array([np.nan, 0.0]))
    (array([10., 20., 30.]), array([1., 0.]))
    """
    known = ~np.isnan(sizes)
    usual = float(sizes[known].mean()) if known.any() else 0.0
    return sizes if known.all() else np.where(known, sizes, usual or 1.0)


@SELECTIONS.register(
    formula="d candidates ∝ p without replacement, then the m with the largest F_i(w_t)",
    reference="Cho et al., 2020, 2010.01243",
    examples=(
        "power_of_choice(C=0.1, d=0.3)",
        "power_of_choice(count=3, d=10, batch=16)",
        "power_of_choice(count=3, d=10, stale=true)",
        "power_of_choice(C=0.1, d=0.5, until=20)",
    ),
)
class power_of_choice(uniform):
    """Draws candidates in proportion to their data; the candidates with the largest losses take part.

    ``d``: a number of candidates or a fraction of all clients; it is at least m. d = m is sampling ∝ p, a
    large d selects the worst of all clients. The paper averages the selected clients uniformly: use it with
    ``FedAvg(prior=uniform)``. Two variants save work. ``batch`` estimates each loss from that many samples
    (cpow-d). ``stale`` asks no client and uses the training loss of the last round in which the client took part,
    or infinity if it has not taken part yet (rpow-d). Losses that are not finite numbers come last. ``until``: from
    this round on d = m, which ends the bias towards large losses (adapow-d; the paper's experiments take half of
    the rounds).
    """

    d: int | float = field(default=0.3, metadata={"always": True})
    batch: int | None = None
    stale: bool = False
    until: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        number = isinstance(self.d, int | float) and not isinstance(self.d, bool)
        if not number or not self.d > 0 or (isinstance(self.d, float) and self.d > 1):
            raise ValueError(f"power_of_choice: d = {self.d!r}; give a count (d=10) or a fraction in (0, 1] (d=0.3)")
        if self.batch is not None and (not isinstance(self.batch, int) or self.batch < 1):
            raise ValueError(f"power_of_choice: batch = {self.batch!r}; give a number of samples, at least 1")
        if not isinstance(self.stale, bool) or (self.stale and self.batch is not None):
            raise ValueError("power_of_choice: stale must be true or false; it asks no client, so leave batch out")
        if self.until is not None and (
            isinstance(self.until, bool) or not isinstance(self.until, int) or self.until < 1
        ):
            raise ValueError(f"power_of_choice: until = {self.until!r}; give a round, at least 1")

    @property
    def against_stale(self) -> str:
        if self.until is None:
            return ""
        return "until counts one cohort for each round, and such a server draws several of them, or none, in a version"

    def candidates(self, n: int, round: int = 0) -> int:
        if self.until is not None and round >= self.until:
            return self.size(n)
        d = self.d if isinstance(self.d, int) else math.floor(self.d * n + 1e-9)
        return min(n, max(d, self.size(n)))

    def ask(self, state: State, population: Population, rng: np.random.Generator) -> Question | None:
        if self.stale or (self.until is not None and state.get("round", 0) >= self.until):
            return None
        return Question(np.sort(self._drawn(state, population, rng)), self.batch)

    def select(
        self, state: State, population: Population, losses: Array | None, rng: np.random.Generator
    ) -> tuple[Ids, State]:
        found = self._drawn(state, population, rng)
        memory = {name: value for name, value in state.items() if name != "round"}
        if losses is None:
            known = recall(memory, found, math.inf)
        else:
            known = np.empty(len(found))
            known[np.argsort(found)] = np.where(np.isfinite(losses), losses, -math.inf)
        worst = np.argsort(-known, kind="stable")[: self.size(population.clients)]  # ties: in the order of the draw
        return np.sort(found[worst]), state if self.until is None else {**state, "round": state.get("round", 0) + 1}

    def _drawn(self, state: State, population: Population, rng: np.random.Generator) -> Ids:
        n = population.clients
        everybody = population.named(np.arange(n))
        return everybody[draw(rng, by_now(population.sizes(everybody)), self.candidates(n, state.get("round", 0)))]

    def learn(self, state: State, ids: Ids, losses: Sequence[float]) -> State:
        known = np.isfinite(losses)
        if not self.stale or not known.any():
            return state
        memory = {name: value for name, value in state.items() if name != "round"}
        counted = {} if self.until is None else {"round": state["round"]}
        return {**remember(memory, ids[known], np.asarray(losses)[known]), **counted}


@SELECTIONS.register(
    formula="m clients without replacement, with chances ∝ p_i·F_i(w_t)",
    reference="after Goetz et al., 2019, 1909.12641, whose values are √n_i·F_i",
    examples=("loss_proportional(C=0.1)", "loss_proportional(count=5)"),
)
class loss_proportional(uniform):
    """Draws clients in proportion to their share of the loss, p_i·F_i. All clients are asked."""

    def ask(self, state: State, population: Population, rng: np.random.Generator) -> Question:
        return Question(population.named(np.arange(population.clients)))

    def select(
        self, state: State, population: Population, losses: Array | None, rng: np.random.Generator
    ) -> tuple[Ids, State]:
        assert losses is not None
        everybody = population.named(np.arange(population.clients))
        sizes = by_now(population.sizes(everybody))
        held = np.where(np.isfinite(losses), np.maximum(losses, 0.0), 0.0)
        chances = sizes * (held / max(held.max(), 1e-300))
        if not (chances > 0).any():
            chances = sizes
        return everybody[np.sort(draw(rng, chances, self.size(population.clients)))], state
