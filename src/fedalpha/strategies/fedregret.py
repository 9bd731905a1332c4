"""`FedRegret`: weights that depend on how clients were served in earlier rounds, with AdaGrad's step."""

from __future__ import annotations

import math

import numpy as np

from fedalpha.strategies.arguments import number
from fedalpha.strategies.base import STRATEGIES, State, Strategy
from fedalpha.strategies.cohort import Cohort, Need
from fedalpha.strategies.memory import recall, remember
from fedalpha.strategies.simplex import Array
from fedalpha.strategies.soft import tilt


@STRATEGIES.register(
    formula="alpha_i ∝ p_i·exp(±clip(Σ_t x_it/√(1 + Σ_t x_it²), ln limit)), x_i = (F_i − F̄)/F̄",
    reference="this library; docs/atlas.md",
    examples=("FedRegret", "FedRegret(limit=4.0)"),
)
class FedRegret(Strategy):
    """Online weights: more weight for clients that were repeatedly served worse than the mean.

    x_i = (F_i − F̄)/F̄, between −1 and 1, is how much worse client i is served than the mean of the cohort, with
    F̄ = Σ p_i·|F_i|. Its sum over the rounds is divided by the square root of the sum of
    squares, as in AdaGrad, so there is no rate to choose: noise cancels over the rounds, and a lasting disadvantage
    adds up. ``limit`` bounds exp(±…).

    >>> import fedalpha
    >>> fedalpha.weights("FedRegret", losses=[1, 3]).round(3)
    array([0.29, 0.71])
    """

    limit: float = 2.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "limit", number("FedRegret", "limit", self.limit))
        if self.limit < 1:
            raise ValueError(f"FedRegret: limit = {self.limit}; give the largest exp(±…), at least 1")

    @property
    def requires(self) -> frozenset[Need]:
        return frozenset({"before"})

    def init(self, n: int | None = None) -> State:
        return {"sums": {}, "squares": {}}

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        p, x = cohort.prior("size"), excess(cohort.require("before"), cohort.prior("size"))
        sums = recall(state["sums"], cohort.ids, 0.0) + x
        squares = recall(state["squares"], cohort.ids, 0.0) + x * x
        bound = math.log(self.limit)
        alpha = tilt(p, np.clip(sums / np.sqrt(1.0 + squares), -bound, bound), 1.0)
        kept = {"sums": sums, "squares": squares}
        return alpha, {name: dict(remember(state[name], cohort.ids, values)) for name, values in kept.items()}


def excess(losses: Array, p: Array) -> Array:
    """(F_i − F̄)/F̄ between −1 and 1; 0 where all losses are 0.

    >>> excess(np.array([1.0, 3.0]), np.array([0.5, 0.5]))
    array([-0.5,  0.5])
    """
    most = float(np.abs(losses).max())
    if most == 0:
        return np.zeros(len(p))
    relative = losses / most
    mean = math.fsum((p * relative).tolist())
    size = math.fsum((p * np.abs(relative)).tolist())
    return np.clip((relative - mean) / max(size, 1e-300), -1.0, 1.0)
