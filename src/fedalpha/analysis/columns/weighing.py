"""How a round weighed its clients: see `fedalpha.theory.diagnostics`.

p are the sizes within the cohort. ρ takes the losses *before* training, as the theory does: it is None where
the strategy asked for none (or for later ones), unless alpha = p, when it is 1. All are None in round 0 and where
the model was kept.
"""

from __future__ import annotations

from fedalpha.analysis.columns.base import COLUMNS, Column, Context
from fedalpha.theory.diagnostics import diagnostics


def diagnosed(context: Context) -> dict[str, float | None]:
    """All diagnostics of a round."""
    outcome = context.outcome
    if outcome is None:
        return diagnostics([], [])
    cohort = outcome.cohort
    return diagnostics(outcome.alpha, cohort.sizes, cohort.before, cohort.optima)


class _Diagnostic(Column):
    dtype = "float64"
    panel = True

    def value(self, context: Context) -> float | None:
        return context.once(diagnosed)[self.name]


@COLUMNS.register
class Rho(_Diagnostic):
    """Σ α_i F_i / Σ p_i F_i: above 1 the strategy favours clients with large losses."""

    name = "rho"
    order = 170
    heading = "ρ, the weighting skew"


@COLUMNS.register
class SmallestRatio(_Diagnostic):
    """The smallest α_i / p_i."""

    name = "pi"
    order = 180
    heading = "π = min α/p"


@COLUMNS.register
class LargestRatio(_Diagnostic):
    """The largest α_i / p_i."""

    name = "Pi"
    order = 190
    heading = "Π = max α/p"


@COLUMNS.register
class EffectiveClients(_Diagnostic):
    """1 / Σ α_i²: how many equally weighted clients would give the same variance."""

    name = "effective_clients"
    order = 200
    heading = "effective clients 1/Σα²"


@COLUMNS.register
class Heaviest(_Diagnostic):
    """The largest α_i."""

    name = "heaviest"
    order = 210
    heading = "largest α"
