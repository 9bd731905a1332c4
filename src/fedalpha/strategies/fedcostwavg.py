"""`FedCostWAvg`: sizes mixed with the ratio by which each client's loss fell."""

from __future__ import annotations

import math
from dataclasses import field

import numpy as np

from fedalpha.strategies.arguments import in_mixture
from fedalpha.strategies.base import STRATEGIES, State, Traits
from fedalpha.strategies.cohort import Cohort
from fedalpha.strategies.course import Course
from fedalpha.strategies.memory import recall, remember
from fedalpha.strategies.simplex import Array, normalise


@STRATEGIES.register(
    formula="alpha_i = a·p_i + (1 − a)·r_i/Σr, r_i = previous loss/loss",
    reference="Mächler et al., 2021, 2111.08649",
    examples=("FedCostWAvg(a=0.5)", "FedCostWAvg(a=0.2, loss=before)"),
)
class FedCostWAvg(Course):
    """Sizes mixed with the ratio by which each client's loss has fallen since it was last seen.

    r = 1 for a client that takes part for the first time.

    >>> rule = FedCostWAvg(a=0.5)
    >>> state = rule.weights(rule.init(2), Cohort(ids=[0, 1], sizes=[1, 1], train=[1.0, 1.0]))[1]
    >>> rule.weights(state, Cohort(ids=[0, 1], sizes=[1, 1], train=[1.0, 0.25]))[0]
    array([0.35, 0.65])
    """

    a: float = field(default=0.5, metadata={"always": True})

    def __post_init__(self) -> None:
        super().__post_init__()
        in_mixture("FedCostWAvg", a=self.a)

    @property
    def traits(self) -> Traits:
        return Traits(monotone=-1)

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        losses = self.losses(cohort)
        now = np.log(np.maximum(losses, 1e-300))  # logarithms, as ratios of losses may overflow
        before = recall(state, cohort.ids, math.nan)
        fall = np.where(np.isnan(before), 0.0, np.log(np.maximum(np.nan_to_num(before), 1e-300)) - now)
        ratios = normalise(np.exp(fall - fall.max()))
        alpha = self.a * cohort.prior("size") + (1 - self.a) * ratios
        return alpha, remember(state, cohort.ids, losses)
