"""Statements that go beyond the paper. They are proved in docs/theory.md and tested on random problems.

- `worse_distance`: where the Worse family converges, and how fast.
- `switch_distance`: after a switch to FedAvg there is no bias.
- `polyak_rhs`: one step under the Polyak–Łojasiewicz condition, without convexity.
- `work_rhs`: one round when clients take different numbers of local steps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedalpha.strategies import Array
from fedalpha.theory.constants import Constants
from fedalpha.theory.one_step import noise_constant


def worse_distance(c: Constants, t: ArrayLike, distance0: float, E: int, gamma: float) -> Array:
    """E‖w_t − w_R‖² ≤ max{γ‖w_0 − w_R‖², (12E − 11)G²/μ²}/(t+γ), for η_t = 1/(μ(t+γ)), γ ≥ max(2, E − 1).

    w_R minimises R(w) = max_a [a·x(w) − Φ(a)], the risk whose maximiser a is the weights of the strategy; see
    `fixed_point`.
    """
    top = max(gamma * distance0, (12 * E - 11) * c.G2 / c.mu**2)
    return np.asarray(top / (np.asarray(t, dtype=np.float64) + gamma))


def switch_distance(
    c: Constants, t: ArrayLike, t_switch: int, distance: float, E: int, gamma: float, s2: float | None = None
) -> Array:
    """Δ_t ≤ max{(t_s+γ)Δ_{t_s}, 8C/(3μ²)}/(t+γ) for t ≥ t_s when FedAvg takes over at t_s (C with ρ̄ = 1).

    ``s2`` is for random cohorts with E[alpha] = p: the largest E Σ alpha_i² after the switch. In this case ρ is 1 only
    at the starts of rounds.
    """
    if s2 is None:
        C = noise_constant(c, E, 1.0, s2=float(np.square(c.p).sum()), over="all")
    else:
        C = noise_constant(c, E, 1.0, s2=s2, over="starts")
    top = max((t_switch + gamma) * distance, 8 * C / (3 * c.mu**2))
    return np.asarray(top / (np.asarray(t, dtype=np.float64) + gamma))


def polyak_rhs(
    c: Constants, eta: ArrayLike, gap: ArrayLike, dissimilarity: ArrayLike, disc: ArrayLike, s2: ArrayLike
) -> Array:
    """E[F(w_{t+1}) − F*] ≤ (1−ημ)(F(w_t)−F*) + η(χ²ζ² + L²·disc) + L_F η²σ²s2/2, for η ≤ 1/L_F.

    ``dissimilarity`` is χ²ζ², ζ² = Σ p_i‖∇F_i(w_t) − ∇F(w_t)‖². Only ‖∇F‖² ≥ 2μ(F − F*) is used of μ.
    """
    eta, gap, dissimilarity, disc, s2 = (np.asarray(v, dtype=np.float64) for v in (eta, gap, dissimilarity, disc, s2))
    noise = c.L_F * eta**2 * c.sigma2 * s2 / 2
    return np.asarray((1 - eta * c.mu) * gap + eta * (dissimilarity + c.L**2 * disc) + noise)


def effective_weights(alpha: ArrayLike, work: ArrayLike) -> Array:
    """a_i ∝ alpha_i·E_i: the effective weights when client i takes E_i steps.

    >>> effective_weights([0.75, 0.25], [1, 3])
    array([0.5, 0.5])
    """
    a = np.asarray(alpha, dtype=np.float64) * np.asarray(work, dtype=np.float64)
    return np.asarray(a / a.sum(-1, keepdims=True))


def work_rhs(
    c: Constants, eta: ArrayLike, delta: ArrayLike, alpha: ArrayLike, work: ArrayLike, x: ArrayLike, x_star: ArrayLike
) -> Array:
    """One *round* with E_i local steps at client i and a constant step η:

    Δ⁺ ≤ Δ + η²A(A + 4K)G² − 2ηA·(Σ a_i x_i(w) − Σ a_i x_i(w*)), A = Σ alpha_i E_i, a_i = alpha_i E_i/A,
    K = Σ a_i(E_i − 1)/2.

    With a = p (alpha ∝ p_i/E_i) the last term is −2ηA(F(w) − F*) ≤ −ηAμΔ: no bias.
    """
    alpha, work, eta = (np.asarray(v, dtype=np.float64) for v in (alpha, work, eta))
    A = (alpha * work).sum(-1)
    a = effective_weights(alpha, work)
    K = (a * np.maximum(work - 1, 0)).sum(-1) / 2
    pull = (a * (np.asarray(x) - np.asarray(x_star))).sum(-1)
    return np.asarray(np.asarray(delta) + eta**2 * A * (A + 4 * K) * c.G2 - 2 * eta * A * pull)
