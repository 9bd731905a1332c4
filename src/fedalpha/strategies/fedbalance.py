"""`FedBalance`: weights that give the cohort the class shares of all clients."""

from __future__ import annotations

import math

import numpy as np

from fedalpha.strategies.arguments import positive
from fedalpha.strategies.base import STRATEGIES, State, Strategy, Traits
from fedalpha.strategies.cohort import Cohort, Need
from fedalpha.strategies.simplex import Array, normalise

STEPS = 50


@STRATEGIES.register(
    formula="alpha_i ∝ p_i·exp(λ·q_i), λ = argmin ln Σ p_i·exp(λ·(q_i − q)) + ridge/2·‖λ‖²",
    reference="this library, after raking in survey sampling (Deville, Särndal, 1992); docs/atlas.md",
    examples=("FedBalance", "FedBalance(ridge=1.0)"),
)
class FedBalance(Strategy):
    """Compensate for a cohort in which some classes are missing or too frequent.

    q_i are the class shares of client i, q those of all clients: the mean over the cohorts so far. Of all weights
    whose class shares are close to q, alpha is the closest to p (Kullback–Leibler divergence). The smaller ``ridge``,
    the closer the shares are to q. With all clients in every round, and in the first round, alpha = p. Clients report
    their class counts (docs/privacy.md).

    >>> import fedalpha
    >>> rule = fedalpha.strategies.strategy("FedBalance(ridge=0.01)")
    >>> whole = fedalpha.strategies.Cohort(ids=[0, 1, 2], sizes=[1, 1, 2], labels=[[1, 0], [1, 0], [0, 2]])
    >>> _, state = rule.weights(rule.init(), whole)  # a half of each class
    >>> part = fedalpha.strategies.Cohort(ids=[0, 1, 2], sizes=[1, 1, 1], labels=[[1, 0], [1, 0], [0, 1]])
    >>> rule.weights(state, part)[0].round(2)  # two thirds of the first class, so far 7/12
    array([0.29, 0.29, 0.41])
    """

    ridge: float = 0.05

    def __post_init__(self) -> None:
        object.__setattr__(self, "ridge", positive("FedBalance", "ridge", self.ridge))

    @property
    def traits(self) -> Traits:
        return Traits(shift_invariant=True, monotone=0)

    @property
    def requires(self) -> frozenset[Need]:
        return frozenset({"labels"})

    def init(self, n: int | None = None) -> State:
        return {"seen": np.zeros(0)}

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        order = np.argsort(cohort.ids)  # sums in one order, so that the order of clients does not matter
        labels, p = cohort.require("labels")[order], cohort.prior("size")[order]
        width = max(labels.shape[1], len(state["seen"]))
        counts = np.zeros((len(p), width))
        counts[:, : labels.shape[1]] = labels / max(1.0, float(labels.max()))
        totals = counts.sum(axis=1)
        some = (totals > 0) & (p > 0)
        seen = np.zeros(width)
        seen[: len(state["seen"])] = state["seen"]
        if not some.any():
            return cohort.prior("size"), {"seen": seen}
        shares = counts[some] / totals[some, None]
        seen = seen + normalise(p[some]) @ shares
        away = np.zeros_like(counts)
        away[some] = shares - seen / seen.sum()
        logits = (away * self._tilt(p, away)).sum(axis=1)
        alpha = np.empty(len(p))
        alpha[order] = _tilted(p, logits)
        return alpha, {"seen": seen}

    def _tilt(self, p: Array, away: Array) -> Array:
        """λ, by Newton's method on a smooth, strongly convex function; a step that does not lower it is halved."""
        tilt, value = np.zeros(away.shape[1]), self._value(p, away, np.zeros(away.shape[1]))
        for _ in range(STEPS):
            alpha = _tilted(p, (away * tilt).sum(axis=1))
            mean = alpha @ away
            slope = mean + self.ridge * tilt
            curvature = (away.T * alpha) @ away - np.outer(mean, mean) + self.ridge * np.eye(len(tilt))
            step, size = np.linalg.solve(curvature, slope), 1.0
            while (lower := self._value(p, away, tilt - size * step)) > value and size > 1e-6:
                size /= 2
            if not lower < value:
                break
            tilt, value = tilt - size * step, lower
        return tilt

    def _value(self, p: Array, away: Array, tilt: Array) -> float:
        logits = (away * tilt).sum(axis=1)
        most = float(logits.max())
        whole = math.fsum((p * np.exp(logits - most)).tolist())
        return most + math.log(whole) + self.ridge / 2 * float(tilt @ tilt)


def _tilted(p: Array, logits: Array) -> Array:
    return normalise(p * np.exp(logits - logits.max()))
