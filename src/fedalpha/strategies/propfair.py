"""`PropFair`: proportional fairness, the product of the clients' utilities."""

from __future__ import annotations

from dataclasses import field

import numpy as np

from fedalpha.strategies.arguments import PRIORS, choice, positive
from fedalpha.strategies.base import STRATEGIES, State, Strategy, Traits
from fedalpha.strategies.cohort import Cohort, Need
from fedalpha.strategies.simplex import Array, normalise


@STRATEGIES.register(
    formula="alpha_i ∝ p_i/max(M − F_i, epsilon)",
    reference="Zhang et al., 2022, 2202.01666",
    examples=("PropFair(M=5)",),
)
class PropFair(Strategy):
    """Maximise Σ p_i·log(M − F_i): the same improvement counts more for a client with a large loss.

    ``M`` is a baseline loss; the utility M − F_i counts as at least ``epsilon``, for clients with F_i near or above M
    (the paper uses the loss itself there, for the same purpose). The weights are those of the gradient of the
    objective with respect to the model; the paper takes the logarithm inside the clients' own training. Written from
    the paper alone.

    >>> import fedalpha
    >>> fedalpha.weights("PropFair(M=5)", losses=[1, 3])
    array([0.33333333, 0.66666667])
    """

    M: float = field(default=5.0, metadata={"always": True})
    epsilon: float = 0.2
    prior: str = "size"

    def __post_init__(self) -> None:
        for name in ("M", "epsilon"):
            object.__setattr__(self, name, positive("PropFair", name, getattr(self, name)))
        choice("PropFair", "prior", self.prior, PRIORS)

    @property
    def traits(self) -> Traits:
        return Traits(monotone=1)

    @property
    def requires(self) -> frozenset[Need]:
        return frozenset({"before"})

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        utility = np.maximum(self.M - cohort.require("before"), self.epsilon)
        return normalise(cohort.prior(self.prior) / utility), state
