"""`AFL`: weights that grow with the losses over the rounds (agnostic federated learning)."""

from __future__ import annotations

from dataclasses import field

import numpy as np

from fedalpha.strategies.arguments import PRIORS, choice, positive
from fedalpha.strategies.base import STRATEGIES, State, Strategy, Traits
from fedalpha.strategies.cohort import Cohort, Need
from fedalpha.strategies.memory import recall, remember
from fedalpha.strategies.simplex import Array, normalise, onto_simplex
from fedalpha.strategies.soft import tilt


@STRATEGIES.register(
    formula="alpha = λ_t; then λ_{t+1} = Proj_simplex(λ_t + γ·F), or ∝ λ_t·e^(γF) with ascent=exponential",
    reference="Mohri et al., 2019, 1902.00146; Ro et al., 2021, 2104.02748",
    examples=("AFL(gamma=0.1)", "AFL(gamma=0.5, ascent=exponential, prior=uniform)"),
)
class AFL(Strategy):
    """Agnostic federated learning: the weights move towards the mixture with the largest loss.

    λ starts at the prior. Each round uses λ_t and then moves λ along the losses F_i(w_t), so that the losses
    of a round affect the weights from the next round on. ``ascent``: projected (onto the simplex) or
    exponential. The authors' code evaluates the average of the iterates, for which their guarantee holds; here the
    model is the last iterate. (Their projection onto the simplex has a mistake; this one is exact.) If the cohort is
    only a part of all clients, λ is restricted to the cohort and rescaled; the other clients keep their λ.

    >>> rule = AFL(gamma=0.1)
    >>> cohort = Cohort(ids=[0, 1], sizes=[1, 1], before=[1.0, 3.0])
    >>> alpha, state = rule.weights(rule.init(2), cohort)
    >>> alpha, rule.weights(state, cohort)[0]
    (array([0.5, 0.5]), array([0.4, 0.6]))
    """

    gamma: float = field(default=0.1, metadata={"always": True})
    ascent: str = "projected"
    prior: str = "size"

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", positive("AFL", "gamma", self.gamma))
        choice("AFL", "ascent", self.ascent, ("projected", "exponential"))
        choice("AFL", "prior", self.prior, PRIORS)

    @property
    def traits(self) -> Traits:
        return Traits(monotone=0)

    @property
    def requires(self) -> frozenset[Need]:
        return frozenset({"before"})

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        p, losses = cohort.prior(self.prior), cohort.require("before")
        with np.errstate(over="ignore"):
            climb = np.clip(self.gamma * losses, -1e300, 1e300)
        if self.ascent == "exponential":  # the memory holds the sum of γ·F: λ ∝ p·exp(sum)
            total = recall(state, cohort.ids, 0.0)
            alpha = tilt(p, total, 1.0).copy()
            return alpha, remember(state, cohort.ids, np.clip(total + climb, -1e300, 1e300))
        known = recall(state, cohort.ids, -1.0)
        kept = np.where(known < 0, p, known)
        alpha = normalise(kept) if (kept > 0).any() else p
        return alpha, remember(state, cohort.ids, onto_simplex(alpha, climb))
