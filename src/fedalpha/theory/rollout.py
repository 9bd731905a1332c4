"""The roll-out bound: iterate the one-step inequality along a schedule of strategies.

ρ̄ and ρ̃ are the extremes over all steps, so they do not reflect a switch or annealing. In the roll-out
every step has its own ρ_t, X*_t and Σ alpha².
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedalpha.strategies import Array
from fedalpha.theory.constants import Constants
from fedalpha.theory.one_step import lemma2_rhs
from fedalpha.theory.quantities import pi_Pi


def rollout_bound(
    c: Constants,
    delta0: float,
    eta: ArrayLike,
    *,
    E: int = 1,
    rho: ArrayLike = 1.0,
    X_star: ArrayLike | None = None,
    s2: ArrayLike = 1.0,
) -> Array:
    """An upper bound of Δ_0 … Δ_T, T = len(eta), from lower bounds ``rho`` of ρ_t and upper bounds of X*_t, Σ alpha².

    Each step is the exact step with disc replaced by Lemma 2 (corrected) and E Σ alpha_i x_i(w_t) by
    ρ_t(μΔ_t/2 + Γ). A negative coefficient of Δ_t is replaced by 0, as Δ_t ≥ 0.

    >>> from fedalpha.theory.problems import quadratics
    >>> c = quadratics(sigma=0).constants
    >>> bound = rollout_bound(c, 9.0, c.step()(np.arange(1000)))
    >>> bool(bound[-1] < 0.1)
    True
    """
    eta = np.asarray(eta, dtype=np.float64)
    T = len(eta)
    rho = np.broadcast_to(np.asarray(rho, dtype=np.float64), T)
    X = np.broadcast_to(np.asarray(c.Gamma if X_star is None else X_star, dtype=np.float64), T)
    s2 = np.broadcast_to(np.asarray(s2, dtype=np.float64), T)
    if (c.L * eta > 0.5).any():
        raise ValueError(f"rollout_bound: the step needs η ≤ 1/(2L) = {0.5 / c.L}, the largest is {eta.max()}")
    keep, smooth = 1 - eta * c.mu, 1 - c.L * eta
    pull = 2 * eta * (1 - 2 * c.L * eta) * smooth * rho
    factor = np.maximum(keep - pull * c.mu / 2, 0.0)
    drift = 2 * keep * smooth * lemma2_rhs(c, eta, E)
    extra = drift + eta**2 * c.sigma2 * s2 - pull * c.Gamma + 2 * eta * X
    bound = np.empty(T + 1)
    bound[0] = delta0
    for t in range(T):
        bound[t + 1] = max(factor[t] * bound[t] + extra[t], 0.0)
    return bound


def schedule_of_weights(c: Constants, alpha: ArrayLike, x_star: ArrayLike, E: int = 1) -> dict[str, Array]:
    """ρ, X* and s2 for `rollout_bound`, only from the weights of each round, for any losses: ρ_t ≥ π_t.

    ``alpha`` is (round, client), ``x_star`` the F_i(w*) − F_i*.
    """
    alpha = np.asarray(alpha, dtype=np.float64)
    pi, _ = pi_Pi(alpha, c.p)
    columns = {"rho": pi, "X_star": alpha @ np.asarray(x_star), "s2": np.square(alpha).sum(-1)}
    return {name: np.repeat(column, E) for name, column in columns.items()}
