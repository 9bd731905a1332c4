"""`FedMGDA`: the shortest vector in the convex hull of the clients' directions, so that no client is made worse."""

from __future__ import annotations

import math
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from fedalpha.strategies.arguments import PRIORS, choice, positive
from fedalpha.strategies.base import STRATEGIES, State, Strategy, Traits
from fedalpha.strategies.cohort import Cohort, Need
from fedalpha.strategies.simplex import Array, onto_box


@STRATEGIES.register(
    formula="alpha_i = η·λ_i/‖g_i‖, λ = argmin ‖Σ λ_i·g_i/‖g_i‖‖² on the simplex with |λ_i − p_i| ≤ ε",
    reference="Hu et al., 2022, 2006.11489",
    examples=("FedMGDA(epsilon=0.1)", "FedMGDA(epsilon=1, eta=0.5, prior=uniform)", "FedMGDA(epsilon=0)"),
)
class FedMGDA(Strategy):
    """FedMGDA+: scale every client's update to length 1, then take the shortest vector in the hull of these directions.

    With epsilon = 1 that vector has a non-negative inner product with every client's direction: no client is
    made worse, to first order. With epsilon = 0 it is the mean of the directions, weighted by the prior. ``eta``
    is the length scale of the server's step, as directions have length 1. A client that is idle has no direction
    and gets the coefficient 0.

    >>> import fedalpha
    >>> fedalpha.weights("FedMGDA(epsilon=1)", losses=[1, 1], gram=[[4, 0], [0, 1]])
    array([0.25, 0.5 ])
    """

    epsilon: float = field(default=0.1, metadata={"always": True})
    eta: float = 1.0
    prior: str = "size"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive("FedMGDA", "epsilon", self.epsilon, zero=True))
        object.__setattr__(self, "eta", positive("FedMGDA", "eta", self.eta))
        choice("FedMGDA", "prior", self.prior, PRIORS)

    @property
    def traits(self) -> Traits:
        return Traits(simplex=False, shift_invariant=True, monotone=0)

    @property
    def requires(self) -> frozenset[Need]:
        return frozenset({"gram"})

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        by_id = np.argsort(cohort.ids)  # rounding of the sums depends on the order of clients
        gram = cohort.require("gram")[np.ix_(by_id, by_id)]
        lengths = np.sqrt(np.maximum(np.diagonal(gram), 0.0))
        scale = np.where(lengths > 0, lengths, 1.0)
        cosines = np.where((lengths[:, None] > 0) & (lengths > 0), gram / scale[:, None] / scale, 0.0)
        share = smallest_in_hull(cosines, cohort.prior(self.prior)[by_id], self.epsilon)
        with np.errstate(over="ignore"):
            found = np.where(lengths > 0, np.minimum(self.eta * share / scale, 1e300), 0.0)
        alpha = np.empty(len(cohort))
        alpha[by_id] = found
        return alpha, state


def smallest_in_hull(
    gram: NDArray[np.float64], p: Array, epsilon: float, steps: int = 1000, slope: Array | None = None
) -> Array:
    """argmin λᵀ·gram·λ over Σλ = 1, max(0, p − ε) ≤ λ ≤ min(1, p + ε): projected gradients with momentum.

    With ``slope``, argmin ½·λᵀ·gram·λ + slope·λ.

    >>> smallest_in_hull(np.diag([4.0, 1.0]), np.array([0.5, 0.5]), 1.0).round(9)
    array([0.2, 0.8])
    """
    low, high = np.maximum(0.0, p - epsilon), np.minimum(1.0, p + epsilon)
    bound = max(float(np.abs(gram).sum(axis=1).max()), 1e-300)  # at least the largest eigenvalue
    point = ahead = p
    momentum = 1.0
    for _ in range(steps):
        if slope is None:
            downhill = (gram * ahead).sum(axis=1)
        else:  # exact sums: clients that are alike get the same weight, whatever their order
            downhill = slope + np.array([math.fsum(row.tolist()) for row in gram * ahead])
        found = onto_box(ahead - downhill / bound, low, high)
        moved = found - point
        if float(np.abs(found - ahead).max()) < 1e-13:
            return found
        if math.fsum(((ahead - found) * moved).tolist()) > 0:  # overshot: restart the momentum
            momentum = 1.0
        following = (1 + math.sqrt(1 + 4 * momentum * momentum)) / 2
        ahead = found + (momentum - 1) / following * moved
        point, momentum = found, following
    return point
