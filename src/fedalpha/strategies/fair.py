"""Rules that look after the clients that are served worst.

- `qFedAvg`: losses to the power q, with a step length that fits (q-FFL).
- `AFL`: weights that climb with the losses over the rounds (agnostic federated learning).
- `TERM`: tilted empirical risk; a name for the soft rules.
- `Superquantile`: the size-weighted mean over the tail of large losses (CVaR).
- `FedMGDA`: the smallest vector in the hull of the clients' directions (FedMGDA+).

Use qFedAvg or AFL to even out accuracy at a tunable price, Superquantile to state which share of the
worst clients counts, FedMGDA where no client may be made worse and updates differ in size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedalpha.strategies.base import (
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
from fedalpha.strategies.rules import FedAvg, FedSoftBetter, FedSoftWorse, tilt

PRIORS = ("size", "uniform")


def positive(owner: str, argument: str, value: object, zero: bool = False) -> float:
    """A finite number above 0 (or at least 0), or an error that says so."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not (0 if zero else 1e-300) <= value < math.inf:
        raise ValueError(f"{owner}: {argument} = {value!r}; give a number {'≥' if zero else '>'} 0")
    return float(value)


@STRATEGIES.register(
    formula="alpha_i = L·F_i^q / Σ h, h_j = q·F_j^(q−1)·‖L·g_j‖² + L·F_j^q, L = 1/lr, g = w_t − w_j",
    reference="Li et al., 2020, 1905.10497",
    examples=("qFedAvg(q=1)", "qFedAvg(q=0.2, lr=0.05)", "qFedAvg(q=0)"),
)
@dataclass(frozen=True, eq=False, repr=False)
class qFedAvg(Strategy):  # noqa: N801 - the method's own name
    """q-FFL: minimises Σ F_i^(q+1)/(q+1); q = 0 is the uniform mean, a large q the worst client.

    F_i is the loss of the *received* model on all of the client's data, as in the reference
    implementation, which also adds 1e-10 to it. ``lr`` is the rate of the local updates. The
    coefficients do not sum to 1: the model moves by Σ alpha_i·(w_i − w_t).

    >>> import fedalpha
    >>> fedalpha.weights("qFedAvg(q=1, lr=1)", losses=[1, 3], norms=[1, 1]).round(6)
    array([0.166667, 0.5     ])
    """

    q: float = field(default=1.0, metadata={"always": True})
    lr: float = 0.1

    text_name: ClassVar[str] = "qFedAvg"

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
        # Dividing all losses by the largest changes no alpha but for the first term of h.
        scale = losses.max()
        share = np.maximum(losses / scale, 1e-300)
        L = 1 / self.lr
        moves = np.minimum(cohort.require("norms"), 1e140) * L
        with np.errstate(over="ignore", under="ignore"):
            powers = share**self.q
            h = self.q * share ** (self.q - 1) * (moves / scale * moves) + L * powers
            alpha: Array = L * powers / math.fsum(np.minimum(h, 1e300).tolist())
        return alpha, state


@STRATEGIES.register(
    formula="alpha = λ_t; then λ_{t+1} = Proj_simplex(λ_t + γ·F), or ∝ λ_t·e^(γF) with ascent=exponential",
    reference="Mohri et al., 2019, 1902.00146; Ro et al., 2021, 2104.02748",
    examples=("AFL(gamma=0.1)", "AFL(gamma=0.5, ascent=exponential, prior=uniform)"),
)
@dataclass(frozen=True, eq=False, repr=False)
class AFL(Strategy):
    """Agnostic federated learning: the weights climb towards the mixture with the largest loss.

    λ starts at the prior; each round uses λ_t and then moves it along the losses F_i(w_t), so that this
    round's losses only count from the next round on. ``ascent``: projected (onto the simplex) or
    exponential. In a cohort that is a part of all clients λ is restricted to it and rescaled;
    clients that were not seen keep what they had.

    >>> rule = AFL(gamma=0.1)
    >>> cohort = Cohort(ids=[0, 1], sizes=[1, 1], before=[1.0, 3.0])
    >>> alpha, state = rule.weights(rule.init(2), cohort)
    >>> alpha, rule.weights(state, cohort)[0]
    (array([0.5, 0.5]), array([0.4, 0.6]))
    """

    gamma: float = field(default=0.1, metadata={"always": True})
    ascent: str = "projected"
    prior: str = "size"

    text_name: ClassVar[str] = "AFL"

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", positive("AFL", "gamma", self.gamma))
        choice("AFL", "ascent", self.ascent, ("projected", "exponential"))
        choice("AFL", "prior", self.prior, PRIORS)

    @property
    def traits(self) -> Traits:
        return Traits(monotone=0)

    @property
    def requires(self) -> frozenset[Need]:
        return frozenset({"before"})

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        p, losses = cohort.prior(self.prior), cohort.require("before")
        with np.errstate(over="ignore"):
            climb = np.clip(self.gamma * losses, -1e300, 1e300)
        if self.ascent == "exponential":  # the memory holds the sum of γ·F: λ ∝ p·exp(sum)
            total = recall(state, cohort.ids, 0.0)
            alpha = tilt(p, total, 1.0).copy()
            return alpha, remember(state, cohort.ids, np.clip(total + climb, -1e300, 1e300))
        known = recall(state, cohort.ids, -1.0)
        kept = np.where(known < 0, p, known)
        alpha = normalise(kept) if (kept > 0).any() else p
        return alpha, remember(state, cohort.ids, onto_simplex(alpha, climb))


def onto_simplex(start: Array, climb: Array) -> Array:
    """The point of the simplex nearest to start + climb.

    >>> onto_simplex(np.array([0.5, 0.5]), np.array([0.1, 0.3]))
    array([0.4, 0.6])
    """
    zero, one = np.zeros(len(start)), np.ones(len(start))
    return onto_box(start + (climb - climb.max()), zero, one)


def onto_box(point: Array, low: Array, high: Array) -> Array:
    """The nearest λ with Σλ = 1 and low ≤ λ ≤ high: clip(point − θ), where the sum is piecewise linear in θ.

    Every client is treated alike and sums are exact, so that the order of clients does not matter.
    """

    def clipped(theta: float) -> Array:
        return np.clip(point - theta, low, high)

    corners = np.unique(np.concatenate([point - high, point - low]))
    first, last = 0, len(corners) - 1  # the sum falls from ≥ 1 at the first corner to ≤ 1 at the last
    while last - first > 1:
        middle = (first + last) // 2
        if math.fsum(clipped(corners[middle]).tolist()) > 1:
            first = middle
        else:
            last = middle
    centre = corners[first] + (corners[last] - corners[first]) / 2
    free = (point - centre > low) & (point - centre < high)
    found = clipped(centre)
    if free.any():  # those inside the box share what the others leave
        rest = 1 - math.fsum(found[~free].tolist())
        theta = (math.fsum(point[free].tolist()) - rest) / int(free.sum())
        found = np.where(free, np.clip(point - theta, low, high), found)
    return found


@STRATEGIES.register(
    formula="alpha_i ∝ p_i·e^(t·F_i): FedSoftWorse(T=1/t); t < 0: FedSoftBetter; t = 0: FedAvg",
    reference="Li et al., 2021, 2007.01162",
    examples=("TERM(t=1)", "TERM(t=-2, prior=uniform)", "TERM(t=0)"),
)
def TERM(t: float = 1.0, *, prior: str = "size") -> Strategy:  # noqa: N802
    """Tilted empirical risk minimisation, (1/t)·log Σ p_i·e^(t·F_i): another name for the soft rules.

    >>> TERM(t=5)
    FedSoftWorse(T=0.2)
    """
    if isinstance(t, bool) or not isinstance(t, int | float) or not math.isfinite(t):
        raise ValueError(f"TERM: t = {t!r}; give a number (positive: towards the worst clients)")
    if t == 0:
        return FedAvg(prior=prior)
    return FedSoftWorse(T=1 / t, prior=prior) if t > 0 else FedSoftBetter(T=-1 / t, prior=prior)


@STRATEGIES.register(
    formula="alpha_i ∝ p_i·1[F_i ≥ Q], Q the p-weighted quantile of the losses at 1 − tail",
    reference="Laguel, Pillutla, Malick, Harchaoui, 2021, 2112.09429",
    examples=("Superquantile(tail=0.5)", "Superquantile(tail=0.1, prior=uniform)", "Superquantile(tail=1)"),
)
@dataclass(frozen=True, eq=False, repr=False)
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

    text_name: ClassVar[str] = "Superquantile"

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


@STRATEGIES.register(
    formula="alpha_i = η·λ_i/‖g_i‖, λ = argmin ‖Σ λ_i·g_i/‖g_i‖‖² on the simplex with |λ_i − p_i| ≤ ε",
    reference="Hu et al., 2022, 2006.11489",
    examples=("FedMGDA(epsilon=0.1)", "FedMGDA(epsilon=1, eta=0.5, prior=uniform)", "FedMGDA(epsilon=0)"),
)
@dataclass(frozen=True, eq=False, repr=False)
class FedMGDA(Strategy):
    """FedMGDA+: normalise every client's move, then take the smallest vector of their hull.

    With epsilon = 1 that vector makes a non-negative product with every client's direction (no client is
    made worse, to first order); epsilon = 0 is the mean of the directions weighted by the prior. ``eta``
    is the length scale of the server's step: directions have length 1. A client that did not
    move has no direction and counts as 0.

    >>> import fedalpha
    >>> fedalpha.weights("FedMGDA(epsilon=1)", losses=[1, 1], gram=[[4, 0], [0, 1]])
    array([0.25, 0.5 ])
    """

    epsilon: float = field(default=0.1, metadata={"always": True})
    eta: float = 1.0
    prior: str = "size"

    text_name: ClassVar[str] = "FedMGDA"

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
        by_id = np.argsort(cohort.ids)  # one order for all callers: sums of products depend on it
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


def smallest_in_hull(gram: NDArray[np.float64], p: Array, epsilon: float, steps: int = 1000) -> Array:
    """argmin λᵀ·gram·λ over Σλ = 1, max(0, p − ε) ≤ λ ≤ min(1, p + ε): projected gradients with momentum.

    >>> smallest_in_hull(np.diag([4.0, 1.0]), np.array([0.5, 0.5]), 1.0).round(9)
    array([0.2, 0.8])
    """
    low, high = np.maximum(0.0, p - epsilon), np.minimum(1.0, p + epsilon)
    bound = max(float(np.abs(gram).sum(axis=1).max()), 1e-300)  # at least the largest eigenvalue
    point = ahead = p
    momentum = 1.0
    for _ in range(steps):
        slope = (gram * ahead).sum(axis=1)
        found = onto_box(ahead - slope / bound, low, high)
        moved = found - point
        if float(np.abs(found - ahead).max()) < 1e-13:
            return found
        if math.fsum(((ahead - found) * moved).tolist()) > 0:  # overshot: start the momentum again
            momentum = 1.0
        following = (1 + math.sqrt(1 + 4 * momentum * momentum)) / 2
        ahead = found + (momentum - 1) / following * moved
        point, momentum = found, following
    return point
