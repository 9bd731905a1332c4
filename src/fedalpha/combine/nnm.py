"""A step before another rule: mixing with the nearest neighbours."""

from __future__ import annotations

import dataclasses
from dataclasses import field

import numpy as np

from fedalpha.combine.base import COMBINES, Limit, Reports
from fedalpha.combine.robust import Wrapper, check_simplex, distances
from fedalpha.strategies import Array
from fedalpha.update import Broadcast


@COMBINES.register(
    formula="each w_i becomes the alpha-weighted mean of its n − f nearest, then the rule",
    reference="Allouah et al., 2023, 2302.01772",
    examples=("nnm(trimmed(beta=0.2), f=2)", "clip(nnm(geomed, f=1), C=1.0)"),
)
class nnm(Wrapper):
    """Nearest-neighbour mixing: updates of non-attackers become more alike, so that a robust rule works better."""

    f: int = field(default=1, metadata={"always": True})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.f < 0:
            raise ValueError(f"nnm: f = {self.f!r}; give the number of attackers, ≥ 0")

    def before(self, broadcast: Broadcast, reports: Reports, alpha: Array, simplex: bool) -> Reports:
        check_simplex(self, simplex)
        return reports.move(broadcast, self.mixing(distances(reports.gram(broadcast)), alpha))

    def mixing(self, squares: Array, alpha: Array) -> Array:
        """Row i has the weights of client i's neighbours. The result overwrites ``squares``."""
        for row in squares:  # in a large cohort another matrix would be as large as some models
            nearest = np.argsort(row, kind="stable")[: max(1, len(alpha) - self.f)]
            row[:] = 0.0
            row[nearest] = alpha[nearest]
            row /= row.sum()
        return squares

    def breakdown(self, support: int) -> Limit:
        inner = self.inner.breakdown(support)
        return dataclasses.replace(inner, attackers=min(self.f, inner.attackers))
