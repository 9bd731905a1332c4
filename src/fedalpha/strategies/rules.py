"""The paper's pure strategies.

With x_i = F_i − F_i* and the prior p (sizes, or uniform):

- `FedAvg`: alpha = p.
- `FedWorse` / `FedBetter`: equal weight on the k clients with the largest / smallest x_i.
- `FedSoftWorse` / `FedSoftBetter`: alpha_i ∝ p_i·exp(±x_i / T).

Use FedAvg when the final model must be unbiased; the Worse family to lift the clients that are
served worst; the Better family for a fast start. The soft forms are the stable ones.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedalpha.strategies.base import (
    LOSSES,
    STRATEGIES,
    Array,
    Cohort,
    Need,
    State,
    Strategy,
    Traits,
    choice,
    normalise,
    recall,
    remember,
)

PAPER = "Federated Learning Aggregation: New Robust Algorithms with Guarantees"


@STRATEGIES.register(formula="alpha_i = p_i", reference="McMahan et al., 2017, 1602.05629", examples=("FedAvg",))
@dataclass(frozen=True, eq=False, repr=False)
class FedAvg(Strategy):
    """The size-weighted mean: alpha_i = p_i = n_i / Σ n.

    >>> import fedalpha
    >>> fedalpha.weights("FedAvg", losses=[1, 2], sizes=[30, 10])
    array([0.75, 0.25])
    """

    prior: str = "size"

    text_name: ClassVar[str] = "FedAvg"

    def __post_init__(self) -> None:
        choice("FedAvg", "prior", self.prior, ("size", "uniform"))

    @property
    def traits(self) -> Traits:
        return Traits(shift_invariant=True, monotone=0)

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        return cohort.prior(self.prior), state


@dataclass(frozen=True, eq=False, repr=False)
class LossAware(Strategy):
    """What the loss-aware rules share: which loss they look at, and the excess x = F − F*.

    ``loss``: before (F_i(w_t), known before training), train (running mean of the last local
    epoch) or after (F_i(w_i)). ``optima``: known (those of the cohort, 0 where none are given)
    or estimated (the lowest loss that the client has reported so far).
    """

    loss: Need = field(default="before", kw_only=True)
    optima: str = field(default="known", kw_only=True)

    sign: ClassVar[Literal[-1, 1]]

    def __post_init__(self) -> None:
        choice(self.text_name, "loss", self.loss, LOSSES)
        choice(self.text_name, "optima", self.optima, ("known", "estimated"))

    @property
    def requires(self) -> frozenset[Need]:
        return frozenset({self.loss})

    @property
    def traits(self) -> Traits:
        return Traits(shift_invariant=True, monotone=self.sign if self.optima == "known" else None)

    def excess(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        losses = cohort.require(self.loss)
        if self.optima == "estimated":
            optima = np.minimum(recall(state, cohort.ids, math.inf), losses)
            state = remember(state, cohort.ids, optima)
        elif cohort.optima is None:
            return losses, state
        else:
            optima = cohort.optima
        with np.errstate(over="ignore"):
            excess = losses - optima
        if not np.isfinite(excess).all():
            raise ValueError("loss − optimum overflows float64; rescale the losses and optima")
        return excess, state


@dataclass(frozen=True, eq=False, repr=False)
class TopK(LossAware):
    """1/m' on the m' clients with the largest sign·x; clients tied at the cut share what is left."""

    k: int | float = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        k = int(self.k) if isinstance(self.k, np.integer) else self.k
        object.__setattr__(self, "k", k)
        if isinstance(k, bool) or not isinstance(k, int | float) or not k > 0:
            raise ValueError(f"{self.text_name}: k = {k!r}; give a count (k=3) or a fraction in (0, 1] (k=0.1)")
        if isinstance(k, float) and k > 1:
            raise ValueError(f"{self.text_name}: k = {k} is a fraction above 1; write a whole number to count clients")

    def count(self, m: int) -> int:
        """m', the number of clients that share the weight in a cohort of m."""
        if isinstance(self.k, int):
            return min(self.k, m)
        return max(1, math.floor(self.k * m + 1e-9))

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        excess, state = self.excess(state, cohort)
        x = self.sign * excess
        m = self.count(len(x))
        cut = np.partition(x, len(x) - m)[len(x) - m]
        above, tied = x > cut, x == cut
        alpha = np.where(above, 1.0 / m, 0.0)
        alpha[tied] = (m - above.sum()) / m / tied.sum()
        return alpha, state


TINY = 1e-300
"""Smaller weights have lost digits to underflow, or are about to."""


@dataclass(frozen=True, eq=False, repr=False)
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
            raise ValueError(f"{self.text_name}: T is beyond float64; write T=inf")
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


def tilt(p: Array, x: Array, T: float) -> Array:
    """p_i·exp(x_i/T), normalised; T = inf gives p itself, T = 0 splits the largest x ∝ p.

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
    formula="1/m' on the m' largest x_i = F_i − F_i* (k: a count, or a fraction of the cohort)",
    reference=PAPER,
    examples=("FedWorse", "FedWorse(k=3)", "FedWorse(k=0.2)"),
)
@dataclass(frozen=True, eq=False, repr=False)
class FedWorse(TopK):
    """Equal weight on the k clients with the largest loss (k = 1: the worst client alone).

    >>> import fedalpha
    >>> fedalpha.weights("FedWorse(k=2)", losses=[1, 3, 2], sizes=[1, 1, 1])
    array([0. , 0.5, 0.5])
    """

    text_name: ClassVar[str] = "FedWorse"
    sign: ClassVar[Literal[-1, 1]] = 1


@STRATEGIES.register(
    formula="1/m' on the m' smallest x_i = F_i − F_i*",
    reference=PAPER,
    examples=("FedBetter", "FedBetter(k=3)", "FedBetter(k=0.2)"),
)
@dataclass(frozen=True, eq=False, repr=False)
class FedBetter(TopK):
    """Equal weight on the k clients with the smallest loss (k = 1: the best client alone).

    >>> import fedalpha
    >>> fedalpha.weights("FedBetter(k=2)", losses=[1, 3, 1], sizes=[1, 1, 1])
    array([0.5, 0. , 0.5])
    """

    text_name: ClassVar[str] = "FedBetter"
    sign: ClassVar[Literal[-1, 1]] = -1


@STRATEGIES.register(
    formula="alpha_i ∝ p_i·exp(+x_i/T)",
    reference=PAPER,
    examples=("FedSoftWorse(T=0.2)", "FedSoftWorse(T=0)", "FedSoftWorse(T=2, prior=uniform)"),
)
@dataclass(frozen=True, eq=False, repr=False)
class FedSoftWorse(Soft):
    """A softmax of the losses: the worse a client is served, the more it weighs.

    >>> import fedalpha
    >>> fedalpha.weights("FedSoftWorse(T=1)", losses=[0, 0], sizes=[1, 3])
    array([0.25, 0.75])
    """

    text_name: ClassVar[str] = "FedSoftWorse"
    sign: ClassVar[Literal[-1, 1]] = 1


@STRATEGIES.register(
    formula="alpha_i ∝ p_i·exp(−x_i/T)",
    reference=PAPER,
    examples=("FedSoftBetter(T=0.2)", "FedSoftBetter(T=0)", "FedSoftBetter(T=2, prior=uniform)"),
)
@dataclass(frozen=True, eq=False, repr=False)
class FedSoftBetter(Soft):
    """A softmax of the negated losses: the better a client is served, the more it weighs.

    >>> import fedalpha
    >>> fedalpha.weights("FedSoftBetter(T=0)", losses=[0.5, 0.1, 0.1], sizes=[1, 1, 3])
    array([0.  , 0.25, 0.75])
    """

    text_name: ClassVar[str] = "FedSoftBetter"
    sign: ClassVar[Literal[-1, 1]] = -1
