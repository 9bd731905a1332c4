"""Which hypotheses of the theorems a run breaks, in words."""

from __future__ import annotations

import numpy as np

from fedalpha.strategies import KNOWN_BEFORE_TRAINING
from fedalpha.theory.monte_carlo import Run

ALLOWED = KNOWN_BEFORE_TRAINING | {"steps"}


def hypotheses(run: Run) -> list[str]:
    """One sentence for every hypothesis that the run breaks; an empty list means that the bounds apply.

    >>> from fedalpha.theory.monte_carlo import simulate
    >>> from fedalpha.theory.problems import quadratics
    >>> hypotheses(simulate(quadratics(), "FedWorse", rounds=3))
    []
    >>> print(hypotheses(simulate(quadratics(), "FedWorse(loss=after)", rounds=3))[0])
    FedWorse(loss=after) weighs by what training produced (after), so alpha depends on the round's own gradient \
noise: E[A_2] = 0 fails and no bound applies; use loss=before.
    """
    c, eta, E = run.problem.constants, run.eta, run.E
    broken = []
    late = sorted(run.strategy.requires - ALLOWED)
    if late:
        broken.append(
            f"{run.strategy} weighs by what training produced ({', '.join(late)}), so alpha depends on the round's own "
            "gradient noise: E[A_2] = 0 fails and no bound applies; use loss=before."
        )
    if (run.alpha < 0).any() or np.abs(run.alpha.sum(-1) - 1).max() > 1e-9:
        broken.append("Some alpha are negative or do not sum to 1: w_t is not a convex combination of the clients.")
    if (eta * c.L > 0.25 * (1 + 1e-12)).any():
        broken.append(f"The step size reaches {eta.max():.3g}, above 1/(4L) = {0.25 / c.L:.3g}.")
    if (np.diff(eta) > 0).any():
        broken.append("The step size increases at some step; it must not.")
    start = eta[np.arange(len(eta)) // E * E]
    if (start > 2 * eta * (1 + 1e-12)).any():
        broken.append("The step size falls by more than half within a round (η_t0 ≤ 2η_t fails); take γ ≥ E − 1.")
    if (run.work != E).any():
        broken.append(
            "Clients take different numbers of local steps: the weights that count are alpha_i·E_i (work_rhs)."
        )
    if run.gradient2 > c.G2 * (1 + 1e-12):
        broken.append(f"A gradient of squared norm {run.gradient2:.3g} was seen, above G² = {c.G2:.3g}.")
    return broken
