"""`extrapolate` and `FedExP`: a longer step if the clients' updates disagree."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import field
from functools import cached_property

import numpy as np

from fedalpha.strategies.arguments import positive
from fedalpha.strategies.base import STRATEGIES, State, Strategy, Traits
from fedalpha.strategies.cohort import Cohort, Need
from fedalpha.strategies.combinator import Combinator, simplex_member
from fedalpha.strategies.fedavg import FedAvg
from fedalpha.strategies.simplex import Array

PAPER = "Jhunjhunwala et al., 2023, 2301.09604"


class Extrapolate(Combinator, name="extrapolate"):
    """η·alpha with η ≥ 1; see `extrapolate`."""

    looks_at = frozenset[Need]({"gram"})
    keeps_order = False

    epsilon: float = field(default=0.001, metadata={"always": True})

    @cached_property
    def traits(self) -> Traits:
        return dataclasses.replace(super().traits, simplex=False)

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        gram = cohort.require("gram")
        (alpha,), state = self.all_weights(state, cohort)
        return alpha * step(gram, alpha, self.epsilon), state


def step(gram: Array, alpha: Array, epsilon: float) -> float:
    """η = max(1, Σ alpha_i·‖Δ_i‖²/(2·(‖Σ alpha_i·Δ_i‖² + epsilon))), from the Gram matrix of the Δ_i.

    >>> step(np.eye(8), np.full(8, 0.125), 0.0)
    4.0
    """
    alone = math.fsum((alpha * np.diagonal(gram)).tolist())
    joint = max(0.0, math.fsum((alpha[:, None] * gram * alpha).ravel().tolist()))
    return max(1.0, alone / (2 * (joint + epsilon))) if joint + epsilon > 0 else 1.0


@STRATEGIES.register(
    formula="η·alpha_i, η = max(1, Σ alpha_i·‖Δ_i‖²/(2·(‖Σ alpha_i·Δ_i‖² + epsilon)))",
    reference=PAPER,
    examples=("extrapolate(FedSoftWorse(T=0.2))", "extrapolate(FedAvg(prior=uniform), epsilon=0.1)"),
)
def extrapolate(rule: Strategy | str, *, epsilon: float = 0.001) -> Extrapolate:
    """Any rule with FedExP's server step: the more the clients' updates Δ_i cancel each other, the longer the step.

    >>> import fedalpha
    >>> fedalpha.weights("extrapolate(FedAvg, epsilon=0)", losses=[1, 1], gram=[[1, -0.5], [-0.5, 1]])
    array([1., 1.])
    """
    checked = positive("extrapolate", "epsilon", epsilon, zero=True)
    return Extrapolate(simplex_member("extrapolate", rule), checked)


@STRATEGIES.register(
    formula="η·p_i, η = max(1, Σ p_i·‖Δ_i‖²/(2·(‖Σ p_i·Δ_i‖² + epsilon)))",
    reference=PAPER,
    examples=("FedExP",),
)
def FedExP(epsilon: float = 0.001, *, prior: str = "size") -> Extrapolate:
    """FedAvg with an adaptive server step: `extrapolate(FedAvg)`.

    Checked against the authors' code (Divyansh03/FedExP). In that code epsilon is multiplied by the number of clients
    in the cohort and by 0.998² in every round, and the mean of the last two models is evaluated, because the last one
    oscillates. Here epsilon is constant, and the last model is evaluated.

    >>> FedExP()
    extrapolate(FedAvg, epsilon=0.001)
    """
    return extrapolate(FedAvg(prior=prior), epsilon=epsilon)
