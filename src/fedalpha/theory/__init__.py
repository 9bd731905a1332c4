"""Bounds of the theory and checks of them; docs/theory.md has the proofs. Only `federation` needs torch.

- `quantities`: ρ, κ, π, Π, χ², the effective number of clients; `diagnostics` of a training round.
- `problems`: losses whose `Constants` are known; `simulate` runs strategies on them, and
  `federation` turns them into federations for `fedalpha.run`.
- `one_step_rhs`, `V_E`, `rollout_bound` and the `extensions`: the bounds.
- `fixed_point`: the point to which a strategy converges.
- `hypotheses` and `checks`: whether the theorems apply to a run, and whether they hold. `verify`: both on many runs.

>>> run = simulate("quadratics(sigma=0)", "FedSoftWorse(T=0.5)", E=2, rounds=30)
>>> hypotheses(run), sum(check.violations for check in checks(run))
([], 0)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedalpha.theory.checks import Check, checks
from fedalpha.theory.constants import Constants, InverseStep
from fedalpha.theory.corollary import V_E, Pi_bound, SpeedAndError, V_min, error_from_kappa, error_from_ratio
from fedalpha.theory.diagnostics import diagnostics
from fedalpha.theory.extensions import effective_weights, polyak_rhs, switch_distance, work_rhs, worse_distance
from fedalpha.theory.fixed_points import FixedPoint, fixed_point
from fedalpha.theory.hypotheses import hypotheses
from fedalpha.theory.monte_carlo import Run, simulate
from fedalpha.theory.one_step import exact_rhs, lemma1_rhs, lemma2_rhs, noise_constant, one_step_rhs
from fedalpha.theory.problems import PROBLEMS, Problem, Quadratics, Ridge, Softmax
from fedalpha.theory.quantities import (
    chi2,
    kappa,
    n_eff,
    pi_Pi,
    rho_bar,
    rho_interval,
    rho_tilde_Gamma,
    skew,
    skew_ratio_of_means,
)
from fedalpha.theory.rollout import rollout_bound, schedule_of_weights
from fedalpha.theory.study import verify

if TYPE_CHECKING:
    from fedalpha.theory.federations import federation

__all__ = [
    "PROBLEMS",
    "V_E",
    "Check",
    "Constants",
    "FixedPoint",
    "InverseStep",
    "Pi_bound",
    "Problem",
    "Quadratics",
    "Ridge",
    "Run",
    "Softmax",
    "SpeedAndError",
    "V_min",
    "checks",
    "chi2",
    "diagnostics",
    "effective_weights",
    "error_from_kappa",
    "error_from_ratio",
    "exact_rhs",
    "federation",
    "fixed_point",
    "hypotheses",
    "kappa",
    "lemma1_rhs",
    "lemma2_rhs",
    "n_eff",
    "noise_constant",
    "one_step_rhs",
    "pi_Pi",
    "polyak_rhs",
    "rho_bar",
    "rho_interval",
    "rho_tilde_Gamma",
    "rollout_bound",
    "schedule_of_weights",
    "simulate",
    "skew",
    "skew_ratio_of_means",
    "switch_distance",
    "verify",
    "work_rhs",
    "worse_distance",
]


def __getattr__(name: str) -> Any:
    if name == "federation":  # imports torch
        from fedalpha.theory.federations import federation

        return federation
    raise AttributeError(f"module 'fedalpha.theory' has no attribute {name!r}")
