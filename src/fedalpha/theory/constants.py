"""The constants of a problem, and the step sizes and the γ that the theorems allow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedalpha.strategies import Array


@dataclass(frozen=True, eq=False)
class Constants:
    """The constants of a problem that the bounds need.

    Each F_i is L-smooth and mu-strongly convex, F = Σ p_i F_i is L_F-smooth; gradient noise has
    variance ≤ sigma2, and G2 bounds both E‖g_i‖² and ‖∇F_i‖² along every path that starts in the
    problem's w0 with steps ≤ 1/L. Gamma = F* − Σ p_i F_i* ≥ 0 measures heterogeneity.
    """

    p: Array
    L: float
    L_F: float
    mu: float
    sigma2: float
    G2: float
    w_star: Array
    F_star: float
    Fi_star: Array
    Gamma: float

    @property
    def p_min(self) -> float:
        return float(self.p.min())

    def gamma(self, E: int = 1, beta: float | None = None) -> float:
        """The smallest γ that is valid for step β/(t+γ) (β = 1/μ by default) and *every* strategy.

        γ ≥ max(4Lβ, E − 1, βμB) with B = 1 + 3ρ̄/8 ≤ 1 + 3/(8 p_min), since ρ ≤ 1/p_min.
        """
        beta = 1 / self.mu if beta is None else beta
        return max(4 * self.L * beta, E - 1, beta * self.mu * (1 + 3 / (8 * self.p_min)))

    def step(self, E: int = 1, beta: float | None = None, gamma: float | None = None) -> InverseStep:
        """η_t = β/(t+γ), with β = 1/μ and the smallest allowed γ unless given."""
        beta = 1 / self.mu if beta is None else beta
        return InverseStep(beta, self.gamma(E, beta) if gamma is None else gamma)


@dataclass(frozen=True)
class InverseStep:
    """η_t = β/(t+γ).

    >>> InverseStep(1.0, 4.0)([0, 4])
    array([0.25 , 0.125])
    """

    beta: float
    gamma: float

    def __call__(self, t: ArrayLike) -> Array:
        eta: Array = self.beta / (np.asarray(t, dtype=np.float64) + self.gamma)
        return eta
