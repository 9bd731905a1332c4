"""(Multi-)Krum: average only clients whose updates are close to those of many others."""

from __future__ import annotations

from dataclasses import field

import numpy as np
from torch import Tensor

from fedalpha.combine.base import COMBINES, Limit, Reports
from fedalpha.combine.robust import Robust, combination, distances
from fedalpha.strategies import Array
from fedalpha.strategies.simplex import normalise
from fedalpha.update import Broadcast


@COMBINES.register(
    formula="the m clients with the smallest Σ of ‖w_i − w_j‖² to their n − f − 2 nearest, averaged with alpha",
    reference="Blanchard et al., 2017",
    examples=("krum(f=1)", "krum(f=1, m=3)"),
)
class krum(Robust):
    """Scores the n clients with alpha > 0, takes the ``m`` best and averages them with alpha; n ≥ 2f + 3.

    In a round with fewer clients, the largest f that n allows is used.
    """

    f: int = field(default=1, metadata={"always": True})
    m: int = 1

    def __post_init__(self) -> None:
        if self.f < 0 or self.m < 1:
            raise ValueError(f"{self}: give f ≥ 0 attackers and m ≥ 1 clients to average")

    def aggregate(self, broadcast: Broadcast, reports: Reports, alpha: Array) -> dict[str, Tensor]:
        coefficients = self.coefficients(distances(reports.gram(broadcast)), alpha)
        return combination(broadcast, reports, coefficients, alpha)

    def coefficients(self, squares: Array, alpha: Array) -> Array:
        n = len(alpha)
        f = max(0, min(self.f, (n - 3) // 2))
        near = np.sort(squares, axis=1)[:, 1 : max(2, n - f - 1)]  # without itself: n − f − 2 neighbours
        best = np.argsort(near.sum(axis=1), kind="stable")[: self.m]
        chosen = np.zeros(n)
        chosen[best] = alpha[best]
        return normalise(chosen)

    def breakdown(self, support: int) -> Limit:
        return Limit(1.0, inclusive=True, attackers=min(self.f, max(0, (support - 3) // 2)))
