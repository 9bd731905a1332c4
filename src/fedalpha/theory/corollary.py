"""The corollary: F(w_t) − F* ≤ V/(t+γ) + E for step sizes β/(t+γ), and the bounds on V and E by π.

The term with V vanishes over time, and E is the remaining bias. E = 0 for FedAvg and whenever Γ = 0.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedalpha.strategies import Array
from fedalpha.theory.constants import Constants
from fedalpha.theory.one_step import Over, Variant, noise_constant


class SpeedAndError(NamedTuple):
    """F(w_t) − F* ≤ V/(t+γ) + E, and for the distance Δ_t ≤ v/(t+γ) + d."""

    V: float
    E: float
    v: float
    d: float
    gamma: float

    def gap(self, t: ArrayLike) -> Array:
        return np.asarray(self.V / (np.asarray(t, dtype=np.float64) + self.gamma) + self.E)

    def distance(self, t: ArrayLike) -> Array:
        return np.asarray(self.v / (np.asarray(t, dtype=np.float64) + self.gamma) + self.d)


def V_E(  # noqa: N802 - the paper's letters
    c: Constants,
    delta0: float,
    *,
    E: int = 1,
    rho_bar: float = 1.0,
    X_star: float | None = None,
    s2: float = 1.0,
    variant: Variant = "corrected",
    beta: float | None = None,
    gamma: float | None = None,
    over: Over = "starts",
) -> SpeedAndError:
    """V and E of the corollary for η_t = β/(t+γ), β > 1/(μB), from ρ̄ and ρ̃Γ (``X_star``; Γ by default).

    With B = 1 + 3ρ̄/8, C of Theorem 1 and D = 2(ρ̃Γ − ρ̄Γ):

    - corrected: d = max(0, D)/(μB), v = max{γ(Δ_0 − d)_+, β²C/(βμB − 1)}, V = L_F v/2, E = L_F d/2, for
      γ ≥ max(4Lβ, E − 1, βμB);
    - paper: v = γΔ_0 + β²C/(βμB − 1), d = βD/(βμB − 1), V = Lv/2, E = Ld/2, which for β = 1/μ are the
      printed V = 4L(32E²G²+σ²)/(3μ²ρ̄) + 8L²Γ/μ² + LγΔ_0/2 and E = (8LΓ/3μ)(ρ̃/ρ̄ − 1).

    When Γ = 0 the terms with Γ vanish: these are the error-free forms.

    >>> from fedalpha.theory.problems import quadratics
    >>> c = quadratics(spread=0).constants
    >>> V_E(c, 9.0).E, bool(V_E(c, 9.0).V < V_E(c, 9.0, variant="paper").V)
    (0.0, True)
    """
    if variant == "exact":
        raise ValueError("V_E: there is no exact corollary; use rollout_bound, or the variants corrected and paper")
    beta = 1 / c.mu if beta is None else beta
    gamma = c.gamma(E, beta) if gamma is None else gamma
    B = 1 + 3 * rho_bar / 8
    speed = beta * c.mu * B - 1
    if speed <= 0:
        raise ValueError(f"V_E: β = {beta} is too small (or ρ̄ = {rho_bar} too near 0): β must exceed 1/(μ(1 + 3ρ̄/8))")
    C = noise_constant(c, E, rho_bar, s2=s2, variant=variant, over=over)
    D = 2 * ((c.Gamma if X_star is None else X_star) - rho_bar * c.Gamma)
    if variant == "paper":
        v, d, L = gamma * delta0 + beta**2 * C / speed, beta * D / speed, c.L
    else:
        needed = max(4 * c.L * beta, E - 1, beta * c.mu * B)
        if gamma < needed * (1 - 1e-12):
            raise ValueError(f"V_E: γ = {gamma} is too small; these constants need γ ≥ {needed}")
        d, L = max(0.0, D) / (c.mu * B), c.L_F
        v = max(gamma * max(delta0 - d, 0.0), beta**2 * C / speed)
    return SpeedAndError(L * v / 2, L * d / 2, v, d, gamma)


def V_min(c: Constants, delta0: float, gamma: float | None = None) -> float:  # noqa: N802
    """8L²Γ/μ² + LγΔ_0/2: the part of the printed V that does not depend on the strategy.

    >>> from fedalpha.theory.problems import quadratics
    >>> c = quadratics().constants
    >>> fedavg = V_E(c, 9.0, E=2, variant="paper")
    >>> bool(np.isclose(fedavg.V, V_min(c, 9.0) + 4 * c.L * (32 * 4 * c.G2 + c.sigma2) / (3 * c.mu**2)))
    True
    """
    gamma = c.gamma() if gamma is None else gamma
    return 8 * c.L**2 * c.Gamma / c.mu**2 + c.L * gamma * delta0 / 2


def Pi_bound(pi: float, p_min: float) -> float:  # noqa: N802
    """Π ≤ π + (1 − π)/p_min for any weights with κ ≥ π (equality: all spare weight on the smallest client).

    >>> Pi_bound(1.0, 0.25), Pi_bound(0.0, 0.25)
    (1.0, 4.0)
    """
    return pi + (1 - pi) / p_min


def error_from_kappa(c: Constants, pi: float, Pi: float | None = None) -> float:
    """E ≤ (8LΓ/3μ)(Π/π − 1), from the extremes of κ alone; Π by `Pi_bound` if not given, no bound where π = 0.

    >>> from fedalpha.theory.problems import quadratics
    >>> error_from_kappa(quadratics().constants, 1.0)
    0.0
    """
    Pi = Pi_bound(pi, c.p_min) if Pi is None else Pi
    if pi == 0:
        return math.inf if c.Gamma else 0.0
    return 8 * c.L * c.Gamma / (3 * c.mu) * (Pi / pi - 1)


def error_from_ratio(c: Constants, ratio: float) -> float:
    """E ≤ (L_F Γ/μ)·(ratio − 1)/(1 + 3/(8·ratio)) when Π_t/π_t ≤ ratio in *every* round. New.

    The bound uses each step's own ratio (docs/theory.md, "Bias from per-round bounds"): the quotient of the
    extremes over time, max Π_t / min π_t, which `error_from_kappa` needs, can be as large as ratio².

    >>> from fedalpha.theory.problems import quadratics
    >>> c = quadratics().constants
    >>> error_from_ratio(c, 1.0), bool(error_from_ratio(c, 2.0) < error_from_kappa(c, 0.5, 1.0))
    (0.0, True)
    """
    return c.L_F * c.Gamma / c.mu * (ratio - 1) / (1 + 3 / (8 * ratio))
