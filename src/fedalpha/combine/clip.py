"""A step before another rule: norm clipping."""

from __future__ import annotations

import math
from dataclasses import field

import numpy as np

from fedalpha.combine.base import COMBINES, Limit, Reports
from fedalpha.combine.mean import mean
from fedalpha.combine.robust import Wrapper
from fedalpha.combine.sums import Alone
from fedalpha.strategies import Array
from fedalpha.update import Broadcast


@COMBINES.register(
    formula="x_i·min(1, C/‖x_i‖) with x_i = w_i − w_t, then the rule",
    reference="with attackers of weight B the mean moves by at most 2·B·C",
    examples=("clip(mean, C=1.0)", "clip(trimmed(beta=0.2), C=1.0)"),
)
class clip(Wrapper):
    """No client moves the model by more than C (Euclidean norm over all floating tensors)."""

    C: float = field(default=1.0, metadata={"always": True})

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.C < math.inf:
            raise ValueError(f"clip: C = {self.C!r}; give the largest norm of an update, a number > 0")

    @property
    def linear(self) -> bool:
        return self.inner.linear

    @property
    def alone(self) -> Alone:
        return self._alone

    def _alone(self, norms: Array) -> Array:
        mine, others = self.shares(norms), self.inner.alone
        return mine if others is None else others(norms * mine) * mine

    def before(self, broadcast: Broadcast, reports: Reports, alpha: Array, simplex: bool) -> Reports:
        if reports.summed:  # clipped before they were added
            return reports
        return reports.move(broadcast, self.shares(reports.norms(broadcast)))

    def shares(self, norms: Array) -> Array:
        """The factors for updates of these norms."""
        # Aim a little below C: rounding to the model's dtype must not push the norm above C again.
        below = self.C / np.maximum(norms, self.C) * (1 - 1e-6)
        return np.where(norms <= self.C, 1.0, below)

    def breakdown(self, support: int) -> Limit:
        return Limit(0.5) if isinstance(self.inner, mean) else self.inner.breakdown(support)

    @property
    def clipped_to(self) -> float | None:
        return self.C if isinstance(self.inner, mean) else None
