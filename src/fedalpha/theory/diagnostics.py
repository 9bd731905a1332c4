"""Diagnostics of a round, which every training run computes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from fedalpha.theory.quantities import n_eff


def diagnostics(
    alpha: ArrayLike, sizes: ArrayLike, losses: ArrayLike | None = None, optima: ArrayLike | None = None
) -> dict[str, float | None]:
    """ρ, π, Π, the effective number of clients and the heaviest client's share, as JSON scalars.

    ``losses`` are the F_i(w_t) before training, ``optima`` the F_i* or any lower bounds (0 if not
    given, right for cross-entropy): ρ = Σ alpha_i(F_i − ℓ_i)/Σ p_i(F_i − ℓ_i) is then the ρ of the bounds with Γ
    replaced by F* − Σ p_i ℓ_i, if the cohort is all clients. For a random cohort the ρ of the bounds is another one
    (docs/theory.md). None means unknown: ρ without losses (unless alpha = p, when it is 1),
    Π when a client without data has weight, all of them when no client has weight (a kept round).

    >>> diagnostics([0.25, 0.75], [10, 10], losses=[1.0, 3.0])
    {'rho': 1.25, 'pi': 0.5, 'Pi': 1.5, 'effective_clients': 1.6, 'heaviest': 0.75}
    >>> diagnostics([0.5, 0.5], [10, 10])["rho"]
    1.0
    """
    alpha, sizes = np.asarray(alpha, dtype=np.float64), np.asarray(sizes, dtype=np.float64)
    total = math.fsum(alpha.tolist())
    if not total > 0 or not sizes.sum() > 0:
        return dict.fromkeys(("rho", "pi", "Pi", "effective_clients", "heaviest"))
    p = sizes / sizes.sum()
    if abs(total - 1) > 1e-9:  # coefficients off the simplex; weights on it must not change by rounding
        alpha = alpha / total
    kappa = alpha[p > 0] / p[p > 0]
    rho = None
    if np.allclose(alpha, p, rtol=1e-12, atol=0):
        rho = 1.0
    elif losses is not None:
        x = np.asarray(losses, dtype=np.float64) - (0.0 if optima is None else np.asarray(optima, dtype=np.float64))
        mean = float(p @ x)
        ratio = float(alpha @ x) / mean if mean > 0 else math.nan
        rho = ratio if math.isfinite(ratio) else None
    return {
        "rho": rho,
        "pi": float(kappa.min()),
        "Pi": float(kappa.max()) if not alpha[p == 0].any() else None,
        "effective_clients": float(n_eff(alpha)),
        "heaviest": float(alpha.max()),
    }
