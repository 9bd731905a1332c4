"""`FedNova`: removes the bias due to different numbers of local steps."""

from __future__ import annotations

import math

import numpy as np

from fedalpha.strategies.arguments import PRIORS, choice
from fedalpha.strategies.base import STRATEGIES, State, Strategy, Traits
from fedalpha.strategies.cohort import Cohort, Need
from fedalpha.strategies.simplex import Array


@STRATEGIES.register(
    formula="alpha_i = τ_eff·p_i/τ_i, τ_eff = Σ p_j·τ_j, τ the local steps (‖a‖₁ with momentum or FedProx)",
    reference="Wang et al., 2020, 2007.07481",
    examples=("FedNova", "FedNova(momentum=0.9)", "FedNova(prior=uniform)"),
)
class FedNova(Strategy):
    """Normalised averaging: clients with many local steps have no more influence than others.

    ``momentum``: the momentum of the local SGD; a client's steps then count as
    ‖a‖₁ = (τ − ρ(1 − ρ^τ)/(1 − ρ))/(1 − ρ). With FedProx they count as Σ_{k<τ} (1 − η·μ)^k, because each step reverses
    a part of the earlier ones, and τ_eff counts plain steps; the round knows η·μ of the client update. (In a live
    Flower federation the server does not know the clients' update, and counts plain steps.) With equal steps and no
    pull this is FedAvg.

    >>> import fedalpha
    >>> fedalpha.weights("FedNova", losses=[0, 0], sizes=[1, 1], steps=[1, 3])
    array([1.        , 0.33333333])
    """

    momentum: float = 0.0
    prior: str = "size"

    def __post_init__(self) -> None:
        if isinstance(self.momentum, bool) or not isinstance(self.momentum, int | float) or not 0 <= self.momentum < 1:
            raise ValueError(f"FedNova: momentum = {self.momentum!r}; give the momentum of local SGD, in [0, 1)")
        object.__setattr__(self, "momentum", float(self.momentum))
        choice("FedNova", "prior", self.prior, PRIORS)

    @property
    def traits(self) -> Traits:
        return Traits(simplex=False, shift_invariant=True, monotone=0)

    @property
    def requires(self) -> frozenset[Need]:
        return frozenset({"steps"})

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        rho = self.momentum
        tau = np.maximum(cohort.require("steps"), 1.0)
        p = cohort.prior(self.prior)
        if np.any(cohort.pull):  # as in the authors' code, τ_eff then counts plain steps
            return math.fsum((p * tau).tolist()) * p / pulled(tau, rho, cohort.pull), state
        work = (tau - rho * (1 - rho**tau) / (1 - rho)) / (1 - rho)
        return math.fsum((p * work).tolist()) * p / work, state


def pulled(tau: Array, momentum: float, pull: float | Array) -> Array:
    """‖a‖₁ of τ steps with a pull η·μ towards the start: v ← ρ·v + 1 − η·μ·s, s ← s + v, from v = s = 0.

    s is the sum of the steps (over −η) if every gradient is 1; without momentum, Σ_{k<τ} (1 − η·μ)^k.

    >>> pulled(np.array([1.0, 2.0, 3.0]), 0.0, 0.5)
    array([1.  , 1.5 , 1.75])
    """
    work = speed = way = np.zeros(len(tau))
    for step in range(1, int(tau.max()) + 1):
        speed = momentum * speed + 1 - pull * way
        way = way + speed
        work = np.where(tau == step, way, work)
    return np.maximum(work, 1e-12)
