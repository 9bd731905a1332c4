"""`FedNova`: undoes the bias of clients that take different numbers of local steps."""

from __future__ import annotations

import math

import numpy as np

from fedalpha.strategies.arguments import PRIORS, choice
from fedalpha.strategies.base import STRATEGIES, State, Strategy, Traits
from fedalpha.strategies.cohort import Cohort, Need
from fedalpha.strategies.simplex import Array


@STRATEGIES.register(
    formula="alpha_i = τ_eff·p_i/τ_i, τ_eff = Σ p_j·τ_j, τ the local steps (‖a‖₁ with momentum)",
    reference="Wang et al., 2020, 2007.07481",
    examples=("FedNova", "FedNova(momentum=0.9)", "FedNova(prior=uniform)"),
)
class FedNova(Strategy):
    """Normalised averaging: clients with many local steps do not pull the model their way.

    ``momentum``: the momentum of the local SGD; a client's steps then count as
    ‖a‖₁ = (τ − ρ(1 − ρ^τ)/(1 − ρ))/(1 − ρ). With equal steps this is FedAvg.

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
        work = (tau - rho * (1 - rho**tau) / (1 - rho)) / (1 - rho)
        p = cohort.prior(self.prior)
        return math.fsum((p * work).tolist()) * p / work, state
