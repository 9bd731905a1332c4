"""The size-weighted mean. Use it when the final model must be unbiased."""

from __future__ import annotations

import math

from fedalpha.strategies.arguments import choice
from fedalpha.strategies.base import STRATEGIES, State, Strategy, Traits
from fedalpha.strategies.cohort import Cohort
from fedalpha.strategies.simplex import Array, largest


@STRATEGIES.register(formula="alpha_i = p_i", reference="McMahan et al., 2017, 1602.05629", examples=("FedAvg",))
class FedAvg(Strategy):
    """The size-weighted mean: alpha_i = p_i = n_i / Σ n.

    >>> import fedalpha
    >>> fedalpha.weights("FedAvg", losses=[1, 2], sizes=[30, 10])
    array([0.75, 0.25])
    """

    prior: str = "size"

    def __post_init__(self) -> None:
        choice("FedAvg", "prior", self.prior, ("size", "uniform"))

    @property
    def traits(self) -> Traits:
        return Traits(shift_invariant=True, monotone=0)

    @property
    def separable(self) -> bool:
        return True

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        return cohort.prior(self.prior), state

    def possible(self, cohort: Cohort, f: int, width: float = math.inf) -> float:
        return largest(cohort.prior(self.prior), f)

    def support(self, n: int, width: float = math.inf) -> int:
        return n
