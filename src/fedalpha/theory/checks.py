"""Whether a run violates any statement: measured values are compared with their bounds at every step.

Without noise a violation is a measured value above its bound. With noise it is a *significant*
one: the one-sided lower confidence limit of the mean of measured − bound over R replicas,
corrected (Bonferroni) for all m comparisons made, is above 0. The limit is

    mean − x·s/√(R − x²),  x² = 2·ln(m/level),  s the standard deviation over the replicas:

the self-normalised sum of symmetric variables exceeds x with probability at most exp(−x²/2)
for any distribution (Efron, 1969). Student's t would not be valid: in one dimension the noise is
±σ, and 8 replicas may all be equal. With R ≤ x² replicas no violation can be significant.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from fedalpha.strategies import Array, FedAvg
from fedalpha.strategies.switch import Switch
from fedalpha.strategies.unbiased import Unbiased
from fedalpha.theory.constants import InverseStep
from fedalpha.theory.corollary import V_E
from fedalpha.theory.extensions import polyak_rhs, switch_distance, work_rhs, worse_distance
from fedalpha.theory.fixed_points import FixedPoint, fixed_point
from fedalpha.theory.hypotheses import broken, without_bias
from fedalpha.theory.monte_carlo import Run
from fedalpha.theory.one_step import Over, Variant, exact_rhs, lemma2_rhs, one_step_rhs
from fedalpha.theory.quantities import pi_Pi
from fedalpha.theory.risks import last_rule, risk
from fedalpha.theory.rollout import rollout_bound

PRINTED_AND_CORRECTED: tuple[Variant, ...] = ("paper", "corrected")
THEOREMS: tuple[tuple[Variant, Over], ...] = (("paper", "starts"), ("corrected", "starts"), ("corrected", "all"))
MOST_STATEMENTS = 15
"""No run has more statements than this; for Bonferroni's correction."""
Pair = tuple[str, Array, Array]
"""A statement's name, the measured side and the bound, of shape (step, replica) or broadcastable to it."""


@dataclass(frozen=True)
class Check:
    """One statement on one run: comparisons, violations, and bound/measured (its median, least and last value)."""

    statement: str
    comparisons: int
    violations: int
    ratio: float
    tightest: float
    last: float


def checks(
    run: Run, *, comparisons: int | None = None, level: float = 0.05, fixed: FixedPoint | None = None
) -> list[Check]:
    """Every statement that applies to the run, checked at all its steps.

    A hybrid's statement about its limit is left out if `hypotheses` reports that it does not apply.
    ``comparisons`` is the number of comparisons of the whole study, for Bonferroni's correction
    (default: those of this run); ``fixed`` the run's `fixed_point` if it is known already.

    >>> from fedalpha.theory.monte_carlo import simulate
    >>> from fedalpha.theory.problems import quadratics
    >>> run = simulate(quadratics(sigma=0), "FedSoftWorse(T=0.5)", E=2, rounds=20)
    >>> sum(check.violations for check in checks(run))
    0
    """
    if found := broken(run):
        raise ValueError("checks: the theorems do not apply to this run. " + " ".join(found))
    return compare(run, statements(run, fixed), comparisons=comparisons, level=level)


def compare(run: Run, pairs: Iterable[Pair], *, comparisons: int | None = None, level: float = 0.05) -> list[Check]:
    """Measured against bound for given statements, whether or not the theorems apply to the run."""
    pairs = list(pairs)
    replicas = run.distance.shape[1]
    noisy = run.problem.constants.sigma2 > 0 or run.fraction < 1
    total = comparisons or sum(len(measured) for _, measured, _ in pairs)
    x2 = 2 * math.log(total / level)
    if noisy and replicas <= x2:
        raise ValueError(
            f"checks: {replicas} replicas cannot show a significant violation in {total} comparisons; "
            f"use at least {math.ceil(x2) + 10}"
        )
    width = math.sqrt(x2 / (replicas - x2)) if noisy else 0.0
    return [_compare(*pair, width) for pair in pairs]


def work_statement(run: Run) -> Pair:
    """The round inequality for unequal local work (steps constant within a round), at every round."""
    c, x_star = run.problem.constants, run.problem.excess(run.problem.constants.w_star)
    delta = run.distance[:: run.E]
    x = run.problem.excess(run.w[:-1])
    eta = run.eta[:: run.E, None]
    return "unequal work", delta[1:], work_rhs(c, eta, delta[:-1], run.alpha, run.work, x, x_star)


def statements(run: Run, fixed: FixedPoint | None = None) -> Iterator[Pair]:
    """(name, measured, bound) of every statement that applies to the run."""
    c, E, eta, delta = run.problem.constants, run.E, run.eta[:, None], run.distance
    s2 = float(run.s2.max())
    X = float(run.X_star.max())
    yield "Lemma 1", np.array([[run.lemma1]]), np.zeros((1, 1))
    for variant in PRINTED_AND_CORRECTED:
        yield f"Lemma 2, {variant}", run.disc, lemma2_rhs(c, run.eta, E, variant)[:, None]
    squares = np.repeat(np.square(run.alpha).sum(-1), E, axis=0)
    yield "exact step", delta[1:], exact_rhs(c, eta, delta[:-1], run.disc, run.excess, run.excess_star, squares)
    for variant, over in THEOREMS:
        rho = run.rho_bar(over)
        name = f"Theorem 1, {variant}" + (", ρ̄ over all t" if over == "all" else "")
        bound = one_step_rhs(c, eta, delta[:-1], variant=variant, E=E, rho_bar=rho, X_star=X, s2=s2, over=over)
        yield name, delta[1:], bound
    t = np.arange(len(delta))
    if isinstance(run.step, InverseStep):
        step = dataclasses.asdict(run.step)
        for variant in PRINTED_AND_CORRECTED:
            rho = run.rho_bar()
            if run.step.beta * c.mu * (1 + 3 * rho / 8) > 1 + 1e-9:
                V = V_E(c, delta[0, 0], E=E, rho_bar=rho, X_star=X, s2=s2, variant=variant, **step)
                yield f"Corollary, {variant}", run.gap, V.gap(t)[:, None]
    rolled = rollout_bound(c, delta[0, 0], run.eta, E=E, rho=np.nan_to_num(run.rho), X_star=run.X_star, s2=run.s2)
    yield "roll-out", delta, rolled[:, None]
    pi, Pi = pi_Pi(run.alpha, c.p)
    kappa = {"rho": np.repeat(pi.min(1), E), "X_star": c.Gamma * np.repeat(Pi.max(1), E)}
    yield "roll-out, κ only", delta, rollout_bound(c, delta[0, 0], run.eta, E=E, s2=run.s2, **kappa)[:, None]
    gap = polyak_rhs(c, eta, run.gap[:-1], run.dissimilarity, run.disc, squares)
    yield "Polyak–Łojasiewicz step", run.gap[1:], gap
    yield from _limits(run, fixed)


def _limits(run: Run, fixed: FixedPoint | None) -> Iterator[Pair]:
    """The statements about the limit of a run: the Worse family, and a switch to FedAvg."""
    c, E = run.problem.constants, run.E
    if not isinstance(run.step, InverseStep) or abs(run.step.beta * c.mu - 1) > 1e-12:
        return
    gamma = run.step.gamma
    if run.fraction >= 1 and last_rule(run.strategy) is run.strategy and risk(run.strategy, run.problem.n):
        away = (fixed or fixed_point(run.problem, run.strategy)).distance(run.w)
        yield "Worse family", away, worse_distance(c, E * np.arange(len(away)), away[0, 0], E, gamma)[:, None]
    yield from switch_statement(run) if without_bias(run) else ()


def switch_statement(run: Run) -> Iterator[Pair]:
    """The statement about a switch to FedAvg, whether or not it applies; none for other rules."""
    c, E, delta, gamma = run.problem.constants, run.E, run.distance, run.step.gamma  # type: ignore[attr-defined]
    match run.strategy.members[0] if isinstance(run.strategy, Unbiased) else run.strategy:
        case Switch(at=(*_, last), members=(*_, FedAvg(prior="size"))):
            at = E * last
            if at < len(delta):
                t, s2 = np.arange(at, len(delta)), float(run.s2[at:].max(initial=0.0)) if run.fraction < 1 else None
                bound = switch_distance(c, t, at, delta[at].mean(), E, gamma, s2)
                yield "switch to FedAvg", delta[at:], bound[:, None]


def _compare(statement: str, measured: Array, bound: Array, width: float) -> Check:
    excess = measured - bound
    mean, limit = measured.mean(1), np.broadcast_to(bound, excess.shape).mean(1)
    rounding = 1e-9 * np.abs(mean) + 1e-12
    violated = excess.mean(1) - width * excess.std(1) > rounding
    # Values that are exact by construction (Δ_0, or disc = 0 at round starts) are no measure of tightness.
    telling = (mean > 1e-12) & (np.abs(limit - mean) > 1e-9 * mean)
    ratios = limit[telling] / mean[telling] if telling.any() else np.array([np.nan])
    return Check(
        statement, len(mean), int(violated.sum()), float(np.median(ratios)), float(ratios.min()), float(ratios[-1])
    )
