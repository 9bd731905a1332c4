"""The quantities of the analysis, which measure how weights alpha differ from p.

With x_i = F_i(w) − F_i* ≥ 0 the *weighting skew* is ρ = Σ alpha_i x_i / Σ p_i x_i. It is 1 for
FedAvg, at least 1 for the Worse family and at most 1 for the Better family (when their prior is
p), and always at most 1/p_min.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedalpha.strategies import Array


def skew(alpha: ArrayLike, p: ArrayLike, x: ArrayLike) -> Array:
    """ρ = Σ alpha_i x_i / Σ p_i x_i along the last axis; nan where Σ p_i x_i = 0 (ρ is not defined there).

    >>> float(skew([0, 1], [0.5, 0.5], [1, 3]))
    1.5
    """
    alpha, p, x = (np.asarray(a, dtype=np.float64) for a in (alpha, p, x))
    return _ratio((alpha * x).sum(-1), (p * x).sum(-1))


def skew_ratio_of_means(alpha: ArrayLike, p: ArrayLike, x: ArrayLike) -> float:
    """E[Σ alpha_i x_i] / E[Σ p_i x_i], the mean taken over all axes but the last (the clients).

    The proofs use this ratio, not the mean of ρ, when alpha and w are random.

    >>> skew_ratio_of_means([[0, 1], [1, 0]], [0.5, 0.5], [[1, 3], [1, 1]])
    1.3333333333333333
    """
    alpha, p, x = (np.asarray(a, dtype=np.float64) for a in (alpha, p, x))
    return float(_ratio((alpha * x).sum(-1).mean(), (p * x).sum(-1).mean()))


def kappa(alpha: ArrayLike, p: ArrayLike) -> Array:
    """κ_i = alpha_i / p_i; every p_i must be positive.

    >>> kappa([0.25, 0.75], [0.5, 0.5])
    array([0.5, 1.5])
    """
    p = np.asarray(p, dtype=np.float64)
    if not (p > 0).all():
        raise ValueError("kappa = alpha/p needs p > 0: leave clients without data out")
    quotient: Array = np.asarray(alpha, dtype=np.float64) / p
    return quotient


def pi_Pi(alpha: ArrayLike, p: ArrayLike) -> tuple[Array, Array]:  # noqa: N802 - the paper's letters
    """π = min κ and Π = max κ along the last axis: π ≤ ρ ≤ Π at every w.

    >>> [float(v) for v in pi_Pi([0.25, 0.75], [0.5, 0.5])]
    [0.5, 1.5]
    """
    k = kappa(alpha, p)
    return k.min(-1), k.max(-1)


def n_eff(alpha: ArrayLike) -> Array:
    """1 / Σ alpha_i², the effective number of clients: gradient noise is divided by it.

    >>> float(n_eff([0.5, 0.5, 0, 0]))
    2.0
    """
    return np.asarray(1.0 / np.square(np.asarray(alpha, dtype=np.float64)).sum(-1))


def chi2(alpha: ArrayLike, p: ArrayLike) -> Array:
    """χ² = Σ alpha_i²/p_i − 1 = Σ p_i (κ_i − 1)², zero only for alpha = p.

    >>> float(chi2([0.25, 0.75], [0.5, 0.5]))
    0.25
    """
    p = np.asarray(p, dtype=np.float64)
    return np.asarray((p * np.square(kappa(alpha, p) - 1)).sum(-1))


def rho_bar(alpha: ArrayLike, p: ArrayLike, x: ArrayLike) -> float:
    """ρ̄: the smallest ratio-of-means skew over the first axis (time); shape (time, replica, client).

    >>> rho_bar([[[0, 1]], [[1, 0]]], [0.5, 0.5], [[[1, 3]], [[1, 3]]])
    0.5
    """
    alpha, p, x = (np.asarray(a, dtype=np.float64) for a in (alpha, p, x))
    ratios = _ratio((alpha * x).sum(-1).mean(-1), (p * x).sum(-1).mean(-1))
    return float(np.nanmin(ratios))


def rho_tilde_Gamma(alpha: ArrayLike, x_star: ArrayLike) -> float:  # noqa: N802
    """ρ̃Γ = max_t E Σ alpha_i x_i(w*), never divided by Γ (which may be 0); alpha: (time, replica, client).

    >>> rho_tilde_Gamma([[[0, 1]], [[1, 0]]], [0.5, 0.25])
    0.5
    """
    sums = (np.asarray(alpha, dtype=np.float64) * np.asarray(x_star, dtype=np.float64)).sum(-1)
    return float(sums.mean(-1).max())


def rho_interval(
    alpha: ArrayLike, p: ArrayLike, F: ArrayLike, lo: ArrayLike = 0.0, hi: ArrayLike = np.inf
) -> tuple[float, float]:
    """The exact range of ρ when each F_i* is only known to lie in [lo_i, hi_i] (and below F_i).

    ρ is a ratio of linear functions of F*. Its extremes are at vertices where all clients
    with κ_i above a threshold have one end of their interval and the others the other end, so N + 1 vertices suffice.

    >>> rho_interval([0.25, 0.75], [0.5, 0.5], F=[1, 1], lo=0, hi=0.5)
    (0.8333333333333334, 1.1666666666666667)
    >>> rho_interval([0.25, 0.75], [0.5, 0.5], F=[1, 1], lo=0)
    (0.5, 1.5)
    """
    alpha, p, F = (np.asarray(a, dtype=np.float64) for a in (alpha, p, F))
    least = F - np.minimum(np.broadcast_to(hi, F.shape), F)
    most = F - np.broadcast_to(np.asarray(lo, dtype=np.float64), F.shape)
    if (most < least).any() or not (most > 0).any():
        raise ValueError("rho_interval: need lo ≤ hi and lo ≤ F with at least one lo below F")
    order = np.argsort(-kappa(alpha, p))
    heavy = np.tri(len(F) + 1, len(F), -1, dtype=bool)  # row j: the j heaviest clients
    extremes = []
    for first, rest in ((most, least), (least, most)):
        x = np.where(heavy, first[order], rest[order])
        extremes.append(skew(alpha[order], p[order], x))
    return float(np.nanmin(extremes)), float(np.nanmax(extremes))


def _ratio(a: Array, b: Array) -> Array:
    quotient: Array = np.divide(a, b, out=np.full(np.shape(a), np.nan), where=b > 0)
    return quotient
