"""`FedAU`: more weight for clients that take part rarely, if the probabilities of participation are unknown."""

from __future__ import annotations

import numpy as np

from fedalpha.strategies.base import STRATEGIES, State, Strategy, Traits
from fedalpha.strategies.cohort import Cohort
from fedalpha.strategies.memory import recall, remember
from fedalpha.strategies.simplex import Array, normalise


@STRATEGIES.register(
    formula="alpha_i ∝ p_i·ω_i, or ω_i/N with clients=N; ω_i is the client's mean interval between participations",
    reference="Wang & Ji, 2024, 2306.03401",
    examples=("FedAU", "FedAU(clients=20, cutoff=10)"),
)
class FedAU(Strategy):
    """Adaptive weighting for unknown participation: ω_i estimates 1/probability from the client's past participation.

    An interval ends when the client takes part, or after ``cutoff`` rounds without it. ω_i is the mean of the
    intervals before this round (1 if there are none). With ``clients`` (their number, N) the weights are the
    paper's ω_i/N, coefficients that need not sum to 1; without ``clients`` they are normalised, with p_i in place of
    1/N. If the probabilities are known, use `unbiased`.

    Checked against the authors' code (IBM/fedau, weighting "adaptive").

    >>> rule = FedAU()
    >>> _, state = rule.weights(rule.init(2), Cohort(ids=[0, 1], sizes=[1, 1], round=0))
    >>> _, state = rule.weights(state, Cohort(ids=[0], sizes=[1], round=1))
    >>> _, state = rule.weights(state, Cohort(ids=[0, 1], sizes=[1, 1], round=2))
    >>> rule.weights(state, Cohort(ids=[0, 1], sizes=[1, 1], round=3))[0]  # intervals 1, 1, 1 and 1, 2
    array([0.4, 0.6])
    """

    clients: int | None = None
    cutoff: int = 50

    def __post_init__(self) -> None:
        for name, optional in (("clients", True), ("cutoff", False)):
            value = getattr(self, name)
            if optional and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"FedAU: {name} = {value!r}; give a whole number of at least 1")

    @property
    def traits(self) -> Traits:
        return Traits(simplex=self.clients is None, shift_invariant=True, monotone=0)

    def init(self, n: int | None = None) -> State:
        return {"last": {}, "total": {}, "count": {}}

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        ids = cohort.ids
        last, total, count = (
            recall(state[name], ids, default) for name, default in (("last", -1.0), ("total", 0.0), ("count", 0.0))
        )
        absent = np.maximum(cohort.round - last - 1, 0.0)
        cut = absent // self.cutoff
        total, count = total + cut * self.cutoff, count + cut
        interval = np.where(count > 0, total / np.maximum(count, 1.0), 1.0)
        seen = {"last": np.full(len(cohort), float(cohort.round))}
        seen |= {"total": total + absent % self.cutoff + 1, "count": count + 1}
        following = {name: dict(remember(state[name], ids, values)) for name, values in seen.items()}
        if self.clients is not None:
            return interval / self.clients, following
        return normalise(cohort.prior("size") * interval), following
