"""`Superquantile`: the size-weighted mean over the tail of large losses (CVaR). ``tail`` is the share of the data."""

from __future__ import annotations

from dataclasses import field

import numpy as np

from fedalpha.strategies.arguments import PRIORS, choice
from fedalpha.strategies.base import STRATEGIES, State, Strategy, Traits
from fedalpha.strategies.cohort import Cohort, Need
from fedalpha.strategies.simplex import Array, normalise


@STRATEGIES.register(
    formula="alpha_i ∝ p_i·1[F_i ≥ Q], Q the p-weighted quantile of the losses at 1 − tail",
    reference="Laguel, Pillutla, Malick, Harchaoui, 2021, 2112.09429",
    examples=("Superquantile(tail=0.5)", "Superquantile(tail=0.1, prior=uniform)", "Superquantile(tail=1)"),
)
class Superquantile(Strategy):
    """The mean over the clients whose losses lie in the upper tail; tail = 1 is FedAvg.

    Q is the smallest loss v with Σ p_i·1[F_i ≤ v] ≥ 1 − tail. FedWorse(k) is the same with a number of
    clients in place of a share of the data.

    >>> import fedalpha
    >>> fedalpha.weights("Superquantile(tail=0.5)", losses=[1, 2, 3, 4], sizes=[1, 1, 1, 1]).round(3)
    array([0.   , 0.333, 0.333, 0.333])
    """

    tail: float = field(default=0.5, metadata={"always": True})
    prior: str = "size"
    loss: Need = "before"

    def __post_init__(self) -> None:
        if isinstance(self.tail, bool) or not isinstance(self.tail, int | float) or not 0 < self.tail <= 1:
            raise ValueError(f"Superquantile: tail = {self.tail!r}; give the share that counts, in (0, 1]")
        object.__setattr__(self, "tail", float(self.tail))
        choice("Superquantile", "prior", self.prior, PRIORS)
        choice("Superquantile", "loss", self.loss, ("before", "train", "after"))

    @property
    def traits(self) -> Traits:
        return Traits(shift_invariant=True, monotone=1)

    @property
    def requires(self) -> frozenset[Need]:
        return frozenset({self.loss})

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        p, losses = cohort.prior(self.prior), cohort.require(self.loss)
        order = np.lexsort((p, losses))  # ties in both are interchangeable, so the sums do not depend on the order
        below = np.cumsum(p[order])
        cut = losses[order][np.searchsorted(below, 1 - self.tail - 1e-12)] if self.tail < 1 else losses.min()
        return normalise(np.where(losses >= cut, p, 0.0)), state
