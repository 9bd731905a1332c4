"""One step of the analysis: Lemmas 1 and 2, the exact step, and Theorem 1 in its variants.

All functions bound Δ_{t+1} = E‖w_{t+1} − w*‖² by quantities known at t. Variants:

- ``exact``: the tightest; needs disc and E Σ alpha_i x_i(w_t) as measured.
- ``corrected``: the paper's Theorem 1 with every hypothesis stated and smaller constants.
- ``paper``: the printed constants, valid in the corrected framework when ρ̄ ≤ 6E + 9.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from fedalpha.strategies import Array
from fedalpha.theory.constants import Constants

Variant = Literal["paper", "corrected", "exact"]
Over = Literal["starts", "all"]


def lemma1_rhs(c: Constants, excess: ArrayLike) -> Array:
    """‖∇F_i(w)‖² ≤ 2L·(F_i(w) − F_i*)."""
    return 2 * c.L * np.asarray(excess, dtype=np.float64)


def lemma2_rhs(c: Constants, eta: ArrayLike, E: int, variant: Variant = "corrected") -> Array:
    """E Σ alpha_i‖w_t − w_t^i‖² ≤ η_{t0}²·(t − t0)²·G² (corrected) or 16η_t²E²G² (paper), for all t of ``eta``.

    Corrected: a variance is at most the second moment around w_{t0}, where all clients started.
    """
    eta = np.asarray(eta, dtype=np.float64)
    if variant == "paper":
        return 16 * eta**2 * E**2 * c.G2
    t = np.arange(len(eta))
    start = eta[t - t % E]
    return np.asarray(start**2 * (t % E) ** 2 * c.G2)


def noise_constant(
    c: Constants, E: int, rho_bar: float, *, s2: float = 1.0, variant: Variant = "corrected", over: Over = "starts"
) -> float:
    """C, the constant of η² in Theorem 1.

    Corrected: 8(E−1)²G² + 4(1+ρ̄)(E−1)G² + 6ρ̄LΓ + σ²·s2, where the second term is due to
    ρ̄ over round starts only (``over="all"`` drops this term). Paper: 32E²G² + 6ρ̄LΓ + σ².
    """
    skewed = 6 * rho_bar * c.L * c.Gamma
    if variant == "paper":
        return 32 * E**2 * c.G2 + skewed + c.sigma2
    starts = 4 * (1 + rho_bar) * (E - 1) * c.G2 if over == "starts" else 0.0
    return 8 * (E - 1) ** 2 * c.G2 + starts + skewed + c.sigma2 * s2


def exact_rhs(
    c: Constants, eta: ArrayLike, delta: ArrayLike, disc: ArrayLike, excess: ArrayLike, X_star: ArrayLike, s2: ArrayLike
) -> Array:
    """The exact step, for η ≤ 1/(2L):

    Δ_{t+1} ≤ (1−ημ)Δ_t + 2(1−ημ)(1−Lη)·disc + η²σ²·s2 − 2η(1−2Lη)(1−Lη)·E Σ alpha_i x_i(w_t) + 2ηX*_t.

    It is linear in the measured quantities, so it also holds path by path given the past.
    """
    eta, delta, disc, excess, X_star, s2 = (
        np.asarray(v, dtype=np.float64) for v in (eta, delta, disc, excess, X_star, s2)
    )
    keep, smooth = 1 - eta * c.mu, 1 - c.L * eta
    pull = 2 * eta * (1 - 2 * c.L * eta) * smooth * excess
    return np.asarray(keep * (delta + 2 * smooth * disc) + eta**2 * c.sigma2 * s2 - pull + 2 * eta * X_star)


def one_step_rhs(
    c: Constants,
    eta: ArrayLike,
    delta: ArrayLike,
    *,
    variant: Variant = "corrected",
    E: int = 1,
    rho_bar: float = 1.0,
    X_star: ArrayLike | None = None,
    s2: ArrayLike = 1.0,
    over: Over = "starts",
    disc: ArrayLike = 0.0,
    excess: ArrayLike | None = None,
) -> Array:
    """The right-hand side of the one-step inequality, in one of three variants.

    ``X_star`` is ρ̃Γ (Γ by default, as for FedAvg). The exact variant uses ``disc`` and
    ``excess``, the others ``E``, ``rho_bar`` and ``s2`` (its largest value over the run).

    >>> from fedalpha.theory.problems import quadratics
    >>> c = quadratics().constants
    >>> tight, printed = (one_step_rhs(c, 0.01, 1.0, variant=v, E=2) for v in ("corrected", "paper"))
    >>> bool(tight < printed)
    True
    """
    X = np.asarray(c.Gamma if X_star is None else X_star, dtype=np.float64)
    if variant == "exact":
        if excess is None:
            raise ValueError("one_step_rhs: the exact variant needs excess = E Σ alpha_i x_i(w_t), as measured")
        return exact_rhs(c, eta, delta, disc, excess, X, s2)
    eta, delta = np.asarray(eta, dtype=np.float64), np.asarray(delta, dtype=np.float64)
    C = noise_constant(c, E, rho_bar, s2=float(np.max(s2)), variant=variant, over=over)
    contraction = 1 - eta * c.mu * (1 + 3 * rho_bar / 8)
    return np.asarray(contraction * delta + eta**2 * C + 2 * eta * (X - rho_bar * c.Gamma))
