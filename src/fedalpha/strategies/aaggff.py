"""`AAggFF`: fair weights as an online decision, for a few silos or for many devices."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedalpha.strategies.arguments import choice
from fedalpha.strategies.base import STRATEGIES, State, Strategy, Traits
from fedalpha.strategies.cohort import Cohort, Need
from fedalpha.strategies.fedmgda import smallest_in_hull
from fedalpha.strategies.memory import recall, remember
from fedalpha.strategies.simplex import Array, normalise

CDFS = ("weibull", "exponential", "frechet", "normal", "gumbel", "logistic")


@STRATEGIES.register(
    formula="silo: p = argmin over the simplex of Σ g·p + 2‖p‖² + (K/8)·p'Hp, H = 4I + Σ gg', g = −r/(1 + p·r), "
    "r = CDF(F_i/mean F)/K; device: p ∝ exp(√ln K·Σ(CDF − mean CDF)/(1 + C·mean CDF)/(√(t + 1)·(2 + C)))",
    reference="Hahn et al., 2024, 2405.20821",
    examples=("AAggFF(clients=50, cdf=normal)", "AAggFF"),
)
class AAggFF(Strategy):
    """Adaptive aggregation for fair federated learning: the weights depend on the clients' losses in all rounds so far.

    The losses F_i(w_t), over their mean, pass through a ``cdf`` and are the returns of a portfolio. In the silo form
    the next weights come from an online Newton step; it is meant for cohorts of all clients. ``clients`` (their
    number, K) gives the device form, for cohorts of a share C of them: exponentiated gradients. Absent clients keep
    their stored sums.

    Checked against the authors' code (vaseline555/AAggFF), except for three mistakes in it: its first weights do not
    sum to 1, its estimate of the returns of absent clients leaves out their mean, and its normal CDF decreases. In
    these three points this class follows the paper.

    >>> rule = AAggFF(clients=10)
    >>> cohort = Cohort(ids=[0, 1], sizes=[1, 1], before=[1.0, 3.0])
    >>> rule.weights(rule.init(10), cohort)[0].round(4)
    array([0.4582, 0.5418])
    """

    clients: int | None = None
    cdf: str = "exponential"

    def __post_init__(self) -> None:
        if self.clients is not None and (
            isinstance(self.clients, bool) or not isinstance(self.clients, int) or self.clients < 1
        ):
            raise ValueError(f"AAggFF: clients = {self.clients!r}; give the number of all clients, or leave it out")
        choice("AAggFF", "cdf", self.cdf, CDFS)

    @property
    def traits(self) -> Traits:
        return Traits()

    @property
    def requires(self) -> frozenset[Need]:
        return frozenset({"before"})

    def init(self, n: int | None = None) -> State:
        return {"rounds": 0, "known": {}, "weights": {}, "outer": np.zeros((0, 0))}

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        by_id = np.argsort(cohort.ids)  # rounding of the sums depends on the order of clients
        ids, losses = cohort.ids[by_id], cohort.require("before")[by_id]
        answer = self._silo if self.clients is None else self._device
        found, following = answer(state, ids, returns(losses, self.cdf))
        alpha = np.empty(len(cohort))
        alpha[by_id] = found
        return alpha, {**following, "rounds": state["rounds"] + 1}

    def _silo(self, state: State, ids: NDArray[np.int64], r: Array) -> tuple[Array, State]:
        """An online Newton step with the Lipschitz constant 1/K."""
        K = len(ids)
        p = normalise(np.maximum(recall(state["weights"], ids, 1 / K), 1e-300))
        g = -(r / K) / (1 + math.fsum((p * r / K).tolist()))
        everybody, outer = _grown(state, ids)
        here = np.searchsorted(everybody, ids)
        outer[np.ix_(here, here)] += np.outer(g, g)
        slope = recall(state["known"], ids, 0.0) + g
        alpha, beta = 4.0, K / 4
        curved = (alpha + beta * alpha) * np.eye(K) + beta * outer[np.ix_(here, here)]
        found = smallest_in_hull(curved, np.full(K, 1 / K), 1.0, slope=slope)
        known, weights = remember(state["known"], ids, slope), remember(state["weights"], ids, found)
        return found, {"known": dict(known), "weights": dict(weights), "outer": outer}

    def _device(self, state: State, ids: NDArray[np.int64], r: Array) -> tuple[Array, State]:
        """Exponentiated gradients; a constant added to the gradient of all clients cancels."""
        assert self.clients is not None
        K = max(self.clients, len(ids))
        C, mean = len(ids) / K, math.fsum(r.tolist()) / len(r)
        total = recall(state["known"], ids, 0.0) + (r - mean) / (1 + C * mean)
        rate = math.sqrt(math.log(K)) / math.sqrt(state["rounds"] + 2) / (2 + C)
        power = rate * total
        found = normalise(np.exp(power - power.max()))
        return found, {**state, "known": dict(remember(state["known"], ids, total))}


def returns(losses: Array, cdf: str) -> Array:
    """The CDF of each loss over the mean loss: a bounded return that grows with the loss."""
    top = float(np.abs(losses).max())
    shared = losses / top if top > 0 else losses
    mean = math.fsum(shared.tolist()) / len(shared)
    x = np.clip(shared / mean, 0.0, 700.0) if mean > 0 else np.ones(len(losses))
    if cdf == "weibull":
        return np.asarray(1 - np.exp(-(x**2)))
    if cdf == "exponential":
        return np.asarray(1 - np.exp(-x))
    if cdf == "frechet":
        return np.exp(-1 / np.maximum(x, 1e-3))
    if cdf == "normal":
        return np.array([0.5 * math.erfc((1 - v) / math.sqrt(2)) for v in x.tolist()])
    if cdf == "gumbel":
        return np.exp(-np.exp(1 - x))
    return np.asarray(1 / (1 + np.exp(1 - x)))


def _grown(state: State, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], Array]:
    """All ids seen so far, including the given ones, and the sum of gg' over them (a copy)."""
    seen = state["known"]["ids"] if state["known"] else np.zeros(0, dtype=np.int64)
    everybody = np.union1d(seen, ids)
    outer = np.zeros((len(everybody), len(everybody)))
    places = np.searchsorted(everybody, seen)
    outer[np.ix_(places, places)] = state["outer"]
    return everybody, outer
