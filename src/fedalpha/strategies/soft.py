"""`FedSoftWorse` and `FedSoftBetter`: alpha_i ∝ p_i·exp(±x_i/T), the stable forms of `FedWorse` and `FedBetter`.

Use the Worse family for better accuracy on the worst-served clients, and the Better family for a fast start.
"""

from __future__ import annotations

import math
import sys
from dataclasses import field
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedalpha.strategies.arguments import choice
from fedalpha.strategies.base import PAPER, STRATEGIES, State
from fedalpha.strategies.cohort import Cohort
from fedalpha.strategies.loss_aware import LossAware
from fedalpha.strategies.simplex import Array, largest, normalise

TINY = 1e-300
"""Weights below this have lost digits to underflow, or are close to it."""


class Soft(LossAware):
    """alpha ∝ p·exp(sign·x/T), in float64 and safe for any finite loss."""

    T: float = field(default=0.2, metadata={"always": True})
    prior: str = "size"

    def __post_init__(self) -> None:
        super().__post_init__()
        choice(self.text_name, "prior", self.prior, ("size", "uniform"))
        if isinstance(self.T, bool) or not isinstance(self.T, int | float) or not self.T >= 0:
            raise ValueError(f"{self.text_name}: T = {self.T!r}; the temperature is a number ≥ 0 (inf allowed)")
        if sys.float_info.max < self.T < math.inf:
            raise ValueError(f"{self.text_name}: T is too large for float64; write T=inf")
        object.__setattr__(self, "T", float(self.T))

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        excess, state = self.excess(state, cohort)
        return tilt(cohort.prior(self.prior), self.sign * excess, self.T), state

    def among(self, state: State, cohort: Cohort, some: NDArray[np.bool_]) -> Array | None:
        prior = np.where(some, cohort.prior(self.prior), 0.0)
        if self.T == 0 or not prior.any():
            return None
        shares = tilt(prior, self.sign * self.excess(state, cohort)[0], self.T)
        return np.where(shares > TINY, shares, 0.0)

    @property
    def separable(self) -> bool:
        return self.optima == "known"

    def possible(self, cohort: Cohort, f: int, width: float = math.inf) -> float:
        theirs = largest(cohort.prior(self.prior), f)
        if theirs in (0.0, 1.0) or width == 0 or math.isinf(self.T):
            return theirs
        if self.T == 0 or math.isinf(width) or self.optima == "estimated":
            return 1.0  # with estimated optima two lies make an excess of any size
        return 1 / (1 + (1 - theirs) / theirs * math.exp(-min(width / self.T, 700.0)))

    def support(self, n: int, width: float = math.inf) -> int:
        # Weights that are e^700 times smaller than the largest underflow to 0.
        flat = math.isinf(self.T) or (self.T > 0 and self.optima == "known" and width / self.T < 700)
        return n if flat else 1


def tilt(p: Array, x: Array, T: float) -> Array:
    """p_i·exp(x_i/T), normalised; T = inf gives p, T = 0 shares all weight ∝ p among the largest x.

    >>> tilt(np.array([0.5, 0.5]), np.array([1e300, 0.0]), 0.2)
    array([1., 0.])
    """
    if math.isinf(T):
        return p
    with np.errstate(over="ignore", divide="ignore", under="ignore"):
        gap = x - x[p > 0].max()
        if T == 0:
            return normalise(np.where(gap == 0, p, 0.0))
        logits = np.where(p > 0, gap / T + np.log(p), -np.inf)
        return normalise(np.exp(logits - logits.max()))


@STRATEGIES.register(
    formula="alpha_i ∝ p_i·exp(+x_i/T)",
    reference=PAPER,
    examples=("FedSoftWorse(T=0.2)", "FedSoftWorse(T=0)", "FedSoftWorse(T=2, prior=uniform)"),
)
class FedSoftWorse(Soft):
    """A softmax of the losses: the larger a client's loss, the larger its weight.

    >>> import fedalpha
    >>> fedalpha.weights("FedSoftWorse(T=1)", losses=[0, 0], sizes=[1, 3])
    array([0.25, 0.75])
    """

    sign: ClassVar[Literal[-1, 1]] = 1


@STRATEGIES.register(
    formula="alpha_i ∝ p_i·exp(−x_i/T)",
    reference=PAPER,
    examples=("FedSoftBetter(T=0.2)", "FedSoftBetter(T=0)", "FedSoftBetter(T=2, prior=uniform)"),
)
class FedSoftBetter(Soft):
    """A softmax of the negated losses: the smaller a client's loss, the larger its weight.

    >>> import fedalpha
    >>> fedalpha.weights("FedSoftBetter(T=0)", losses=[0.5, 0.1, 0.1], sizes=[1, 1, 3])
    array([0.  , 0.25, 0.75])
    """

    sign: ClassVar[Literal[-1, 1]] = -1
