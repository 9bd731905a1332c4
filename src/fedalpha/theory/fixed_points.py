"""Where each strategy converges, found by optimisation.

The Worse family plays alpha = argmax_a [a·x(w) − Φ(a)], so it descends on the risk
R(w) = max_a [a·x(w) − Φ(a)] of the regrets x_i = F_i − F_i*:

- FedAvg: p·x = F − Σ p_i F_i*, so w*;
- FedWorse: the largest regret (minimax regret); FedWorse(k): the mean of the k largest (CVaR);
- FedSoftWorse(T): the tilted risk T·log Σ p_i exp(x_i/T);
- mixtures (`mix`, `floor`): the same mixture of their members' risks.

A hybrid ends where its last rule does. FedBetter ends at one client's own optimum; the other
rules have no such law. Full participation and losses before training are understood.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from fedalpha.strategies import Array, FedAvg, FedBetter, FedSoftBetter, FedSoftWorse, FedWorse, Strategy, strategy
from fedalpha.strategies.combinators import AnnealMix, AnnealTemperature, Mix, Switch, floor
from fedalpha.strategies.guaranteed import cool, fade, per_step
from fedalpha.theory.problems import Problem


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """The end of a strategy: a ``law`` in words, and the ``points`` (m, d) at one of which it ends."""

    law: str
    points: Array

    def distance(self, w: Array) -> Array:
        """‖w − nearest point‖² for points w of shape (…, d)."""
        away = np.square(np.asarray(w)[..., None, :] - self.points).sum(-1)
        return np.asarray(away.min(-1))


@dataclass(frozen=True)
class Term:
    """share × a risk of the regrets: linear in them (T = inf), tilted (T > 0) or the mean of the k largest."""

    share: float
    prior: str = "size"
    T: float = np.inf
    k: int = 0


def last_rule(rule: Strategy) -> Strategy:
    """The rule that a hybrid becomes in the end."""
    match rule:
        case Switch():
            return last_rule(rule.members[-1])
        case AnnealMix():
            return last_rule(rule.members[-1])
        case AnnealTemperature():
            return rule.rule(rule.rounds)
        case fade() | cool():
            return FedAvg()
        case per_step():
            return last_rule(rule.members[0])
    return rule


def risk(rule: Strategy, n: int) -> list[Term] | None:
    """The risk on which the rule descends, as a sum of terms; None if it has none."""
    match rule:
        case FedAvg():
            return [Term(1.0, rule.prior)]
        case FedSoftWorse(T=0.0):
            return [Term(1.0, k=1)]
        case FedSoftWorse():
            return [Term(1.0, rule.prior, T=rule.T)]
        case FedWorse():
            return [Term(1.0, k=rule.count(n))]
        case Mix(members=members, shares=shares):
            return _sum([(s, risk(m, n)) for s, m in zip(shares, members, strict=True)])
        case floor(members=(inner,), pi=pi):
            return _sum([(1 - pi, risk(inner, n)), (pi, [Term(1.0)])])
    return None


def fixed_point(problem: Problem, rule: str | Strategy) -> FixedPoint:
    """Where ``rule`` converges on ``problem`` (full participation); an error if no law is known.

    >>> from fedalpha.theory.problems import Quadratics
    >>> two = Quadratics(np.array([[[1.0]], [[4.0]]]), np.array([[0.0], [3.0]]), np.zeros(2), np.zeros(1))
    >>> point = fixed_point(two, "FedWorse")
    >>> point.law, point.points.round(6)
    ('minimax regret', array([[2.]]))
    """
    end = last_rule(strategy(rule))
    if (isinstance(end, FedBetter) and end.count(problem.n) == 1) or (isinstance(end, FedSoftBetter) and end.T == 0):
        return FixedPoint("one client's own optimum", problem.optima)
    terms = risk(end, problem.n)
    if terms is None:
        raise ValueError(
            f"no law says where {end} converges; laws are known for FedAvg, the Worse family and FedBetter"
        )
    if all(t.k == 0 and np.isinf(t.T) and t.prior == "size" for t in terms):
        return FixedPoint("the optimum w*", problem.constants.w_star[None])
    return FixedPoint(_law(terms, problem.n), _minimise(problem, terms)[None])


def _law(terms: list[Term], n: int) -> str:
    names = []
    for t in terms:
        k = "minimax regret" if t.k == 1 else f"CVaR: the mean of the {t.k} largest regrets of {n}"
        names.append(k if t.k else "mean regret" if np.isinf(t.T) else f"tilted risk, T = {t.T:g}")
    shares = (
        "" if len(terms) == 1 else " + ".join(f"{t.share:g} × {name}" for t, name in zip(terms, names, strict=True))
    )
    return shares or names[0]


def _sum(parts: list[tuple[float, list[Term] | None]]) -> list[Term] | None:
    terms = []
    for share, inner in parts:
        if inner is None:
            return None
        terms += [Term(share * t.share, t.prior, t.T, t.k) for t in inner]
    return terms


def _smooth(problem: Problem, terms: list[Term]) -> Callable[[Array], tuple[float, Array]]:
    """Value and gradient of the terms that are smooth in w."""

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
    result = minimize(
        objective,
        np.concatenate([w, *start]),
        jac=True,
        method="SLSQP",
        bounds=[(None, None)] * d + ([(None, None)] + [(0, None)] * n) * len(tops),
        constraints={"type": "ineq", "fun": slack, "jac": slack_gradient},
        options={"ftol": 1e-15, "maxiter": 500},
    )
    return np.asarray(result.x[:d])
