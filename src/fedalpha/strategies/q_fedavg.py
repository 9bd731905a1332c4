"""`qFedAvg`: losses to the power q, with a matching step length (q-FFL)."""

from __future__ import annotations

import math
from dataclasses import field

import numpy as np

from fedalpha.strategies.arguments import positive
from fedalpha.strategies.base import STRATEGIES, State, Strategy, Traits
from fedalpha.strategies.cohort import Cohort, Need
from fedalpha.strategies.simplex import Array


@STRATEGIES.register(
    formula="alpha_i = L·F_i^q / Σ h, h_j = q·F_j^(q−1)·‖L·g_j‖² + L·F_j^q, L = 1/lr, g = w_t − w_j",
    reference="Li et al., 2020, 1905.10497",
    examples=("qFedAvg(q=1)", "qFedAvg(q=0.2, lr=0.05)", "qFedAvg(q=0)"),
)
class qFedAvg(Strategy):
    """q-FFL: minimise Σ F_i^(q+1)/(q+1); q = 0 is the uniform mean, a large q approaches the worst client alone.

    F_i is the loss of the *received* model on all of the client's data, as in the reference
    implementation, which also adds 1e-10 to it. ``lr`` is the rate of the local updates. The
    coefficients do not sum to 1: the model moves by Σ alpha_i·(w_i − w_t).

    >>> import fedalpha
    >>> fedalpha.weights("qFedAvg(q=1, lr=1)", losses=[1, 3], norms=[1, 1]).round(6)
    array([0.166667, 0.5     ])
    """

    q: float = field(default=1.0, metadata={"always": True})
    lr: float = 0.1

    def __post_init__(self) -> None:
        object.__setattr__(self, "q", positive("qFedAvg", "q", self.q, zero=True))
        object.__setattr__(self, "lr", positive("qFedAvg", "lr", self.lr))

    @property
    def traits(self) -> Traits:
        return Traits(simplex=False)

    @property
    def requires(self) -> frozenset[Need]:
        return frozenset({"before", "norms"})

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        losses = cohort.require("before") + 1e-10
        if (losses <= 0).any():
            raise ValueError("qFedAvg needs losses ≥ 0, as it raises them to a power; use FedSoftWorse instead")
        # Divide all losses by the largest, against overflow. The factor cancels, except in the first term of h.
        scale = losses.max()
        share = np.maximum(losses / scale, 1e-300)
        L = 1 / self.lr
        moves = np.minimum(cohort.require("norms"), 1e140) * L
        with np.errstate(over="ignore", under="ignore"):
            powers = share**self.q
            h = self.q * share ** (self.q - 1) * (moves / scale * moves) + L * powers
            alpha: Array = L * powers / math.fsum(np.minimum(h, 1e300).tolist())
        return alpha, state
