"""The point to which each strategy converges, found by optimisation.

The Worse family converges to the minimiser of its risk (`fedalpha.theory.risks`), FedAvg to w*,
FedBetter to one client's own optimum. For the other rules no limit is known. These statements assume full
participation and losses before training.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedalpha.strategies import Array, FedBetter, FedSoftBetter, Strategy, strategy
from fedalpha.strategies.loss_aware import LossAware
from fedalpha.theory.problems import Problem
from fedalpha.theory.risks import Term, last_rule, law, risk


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """The limit of a strategy: a ``law`` in words, and ``points`` (m, d); the strategy converges to one of them."""

    law: str
    points: Array

    def distance(self, w: Array) -> Array:
        """‖w − nearest point‖² for points w of shape (…, d)."""
        away = np.square(np.asarray(w)[..., None, :] - self.points).sum(-1)
        return np.asarray(away.min(-1))


def fixed_point(problem: Problem, rule: str | Strategy) -> FixedPoint:
    """The limit of ``rule`` on ``problem`` with full participation; raises ValueError if no limit is known.

    >>> from fedalpha.theory.problems import Quadratics
    >>> two = Quadratics(np.array([[[1.0]], [[4.0]]]), np.array([[0.0], [3.0]]), np.zeros(2), np.zeros(1))
    >>> point = fixed_point(two, "FedWorse")
    >>> point.law, point.points.round(6)
    ('minimax regret', array([[2.]]))
    """
    end = last_rule(strategy(rule))
    best = (isinstance(end, FedBetter) and end.count(problem.n) == 1) or (isinstance(end, FedSoftBetter) and end.T == 0)
    if best and isinstance(end, LossAware) and end.optima == "known":
        return FixedPoint("one client's own optimum", problem.optima)
    terms = risk(end, problem.n)
    if terms is None:
        raise ValueError(
            f"the limit of {end} is not known; limits are known for FedAvg, the Worse family and FedBetter "
            "with known optima"
        )
    if all(t.k == 0 and np.isinf(t.T) and t.prior == "size" for t in terms):
        return FixedPoint("the optimum w*", problem.constants.w_star[None])
    return FixedPoint(law(terms, problem.n), _minimise(problem, terms)[None])


def _smooth(problem: Problem, terms: list[Term]) -> Callable[[Array], tuple[float, Array]]:
    """Value and gradient of the terms that are smooth in w."""
    from scipy.special import logsumexp

    def evaluate(w: Array) -> tuple[float, Array]:
        x = problem.excess(w)
        value, a = 0.0, np.zeros(problem.n)
        for t in terms:
            p = problem.p if t.prior == "size" else np.full(problem.n, 1 / problem.n)
            if np.isinf(t.T):
                value, a = value + t.share * float(p @ x), a + t.share * p
            else:
                top = float(logsumexp(x / t.T, b=p))
                value, a = value + t.share * t.T * top, a + t.share * p * np.exp(x / t.T - top)
        return value, np.asarray(a @ problem.gradients_at(w))

    return evaluate


def _minimise(problem: Problem, terms: list[Term]) -> Array:
    """argmin of the risk; the k largest by their epigraph: min τ + Σ s_i/k, s_i ≥ x_i − τ, s_i ≥ 0."""
    from scipy.optimize import Bounds, minimize

    smooth = _smooth(problem, [t for t in terms if t.k == 0])
    tops = [t for t in terms if t.k > 0]
    d, n = len(problem.w0), problem.n
    w = minimize(smooth, problem.constants.w_star, jac=True, method="BFGS", options={"gtol": 1e-11}).x
    if not tops:
        return np.asarray(w)
    block = 1 + n
    cost = np.concatenate([t.share * np.concatenate([[1.0], np.full(n, 1 / t.k)]) for t in tops])

    def objective(z: Array) -> tuple[float, Array]:
        value, gradient = smooth(z[:d])
        return value + float(cost @ z[d:]), np.concatenate([gradient, cost])

    def slack(z: Array) -> Array:
        blocks = z[d:].reshape(-1, block)
        return np.asarray((blocks[:, 1:] + blocks[:, :1] - problem.excess(z[:d])).ravel())

    def slack_gradient(z: Array) -> Array:
        own = np.hstack([np.ones((n, 1)), np.eye(n)])
        return np.hstack([np.tile(-problem.gradients_at(z[:d]), (len(tops), 1)), np.kron(np.eye(len(tops)), own)])

    x = problem.excess(w)
    start = [np.concatenate([[c := np.sort(x)[-t.k]], np.maximum(x - c, 0)]) for t in tops]
    above: Any = {"type": "ineq", "fun": slack, "jac": slack_gradient}
    result = minimize(
        objective,
        np.concatenate([w, *start]),
        jac=True,
        method="SLSQP",
        bounds=Bounds(np.concatenate([np.full(d, -np.inf)] + [np.r_[-np.inf, np.zeros(n)]] * len(tops)), np.inf),
        constraints=above,
        options={"ftol": 1e-15, "maxiter": 500},
    )
    return np.asarray(result.x[:d])
