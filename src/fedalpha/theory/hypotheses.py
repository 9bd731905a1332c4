"""The hypotheses of the theorems that a run does not satisfy, in words."""

from __future__ import annotations

import numpy as np

from fedalpha.strategies import KNOWN_BEFORE_TRAINING, FedAvg, Strategy
from fedalpha.strategies.fade import Fade
from fedalpha.strategies.switch import Switch
from fedalpha.strategies.tempered import Tempered
from fedalpha.strategies.unbiased import Unbiased
from fedalpha.theory.monte_carlo import Run

ALLOWED = KNOWN_BEFORE_TRAINING | {"steps"}


def hypotheses(run: Run) -> list[str]:
    """One sentence for every hypothesis that the run does not satisfy; an empty list means that the statements apply.

    The last sentence may say that a statement about the limit of a hybrid does not apply (`unbiased_limit`); the
    other statements do.

    >>> from fedalpha.theory.monte_carlo import simulate
    >>> from fedalpha.theory.problems import quadratics
    >>> hypotheses(simulate(quadratics(), "FedWorse", rounds=3))
    []
    >>> print(hypotheses(simulate(quadratics(), "FedWorse(loss=after)", rounds=3))[0])
    FedWorse(loss=after) weighs by what training produced (after), so alpha depends on the round's own gradient \
noise: E[A_2] = 0 fails and no bound applies; use loss=before.
    >>> hybrid = simulate(quadratics(), "fade(FedWorse)", rounds=3, fraction=0.5)
    >>> hypotheses(hybrid)[0][:46]
    'The cohorts are random and E[alpha] = p fails:'
    """
    return [*broken(run), *unbiased_limit(run)]


def unbiased_limit(run: Run) -> list[str]:
    """Why a hybrid's statement about its limit (docs/theory.md, hybrids 1–4) does not apply; empty if it does."""
    if without_bias(run) or not promises(run.strategy):
        return []
    return [
        "The cohorts are random and E[alpha] = p fails: within a cohort, p is only estimated, with a bias. So "
        f"{run.strategy} keeps a bias; use unbiased({run.strategy}) and cohorts drawn by size."
    ]


def without_bias(run: Run) -> bool:
    """Whether FedAvg's weights have the mean p: full participation, `unbiased`, or equal p."""
    everybody = run.fraction >= 1 or isinstance(run.strategy, Unbiased)
    return everybody or (run.sampling == "uniform" and bool(np.ptp(run.problem.p) < 1e-12))


def promises(rule: Strategy) -> bool:
    """Whether the rule is one of the hybrids whose limit has no bias, or a bounded one."""
    match rule:
        case Switch(members=(*_, FedAvg(prior="size"))) | Fade() | Tempered():
            return True
        case Unbiased(members=(inner,)):
            return promises(inner)
    return False


def broken(run: Run) -> list[str]:
    """The sentences about the hypotheses of all statements."""
    c, eta, E = run.problem.constants, run.eta, run.E
    found = []
    late = sorted(run.strategy.requires - ALLOWED)
    if late:
        found.append(
            f"{run.strategy} weighs by what training produced ({', '.join(late)}), so alpha depends on the round's own "
            "gradient noise: E[A_2] = 0 fails and no bound applies; use loss=before."
        )
    if (run.alpha < 0).any() or np.abs(run.alpha.sum(-1) - 1).max() > 1e-9:
        found.append("Some alpha are negative or do not sum to 1: w_t is not a convex combination of the clients.")
    if (eta * c.L > 0.25 * (1 + 1e-12)).any():
        found.append(f"The step size reaches {eta.max():.3g}, above 1/(4L) = {0.25 / c.L:.3g}.")
    if (np.diff(eta) > 0).any():
        found.append("The step size increases at some step; it must not.")
    start = eta[np.arange(len(eta)) // E * E]
    if (start > 2 * eta * (1 + 1e-12)).any():
        found.append("The step size falls by more than half within a round (η_t0 ≤ 2η_t fails); take γ ≥ E − 1.")
    if (run.work != E).any():
        found.append(
            "Clients take different numbers of local steps: the weights that count are alpha_i·E_i (work_rhs)."
        )
    if run.gradient2 > c.G2 * (1 + 1e-12):
        found.append(
            f"A gradient of squared norm {run.gradient2:.3g} was seen at a local iterate or an average, above "
            f"G² = {c.G2:.3g}."
        )
    return found
