"""Centred clipping.

The iteration uses the coefficients of a combination Σ c_i·x_i, whose distances to the x_i follow from the
Gram matrix. The models themselves are read twice, whatever the number of iterations.
"""

from __future__ import annotations

from dataclasses import field

import numpy as np
from torch import Tensor

from fedalpha.combine.base import COMBINES, Limit, Reports
from fedalpha.combine.robust import Robust, combination
from fedalpha.strategies import Array
from fedalpha.update import Broadcast


@COMBINES.register(
    formula="y ← y + Σ alpha_i·(x_i − y)·min(1, tau/‖x_i − y‖), from y = 0",
    reference="Karimireddy et al., 2021, 2012.10333",
    examples=("centred(tau=1.0)", "centred(tau=1.0, iterations=3)"),
)
class centred(Robust):
    """Centred clipping around the broadcast model: one iteration moves it by at most tau."""

    tau: float = field(default=1.0, metadata={"always": True})
    iterations: int = 1

    def __post_init__(self) -> None:
        if not self.tau > 0 or self.iterations < 1:
            raise ValueError(f"{self}: give tau > 0 and iterations ≥ 1")

    def aggregate(self, broadcast: Broadcast, reports: Reports, alpha: Array) -> dict[str, Tensor]:
        if self.iterations == 1:  # the only distances are the norms
            return combination(broadcast, reports, self._pull(reports.norms(broadcast), alpha), alpha)
        products = reports.gram(broadcast)
        c = np.zeros(len(alpha))
        for _ in range(self.iterations):
            squares = np.diagonal(products) - 2 * (products @ c) + c @ products @ c
            lengths = np.sqrt(np.maximum(squares, 0.0))
            pull = self._pull(lengths, alpha)
            c = c * (1 - pull.sum()) + pull
        return combination(broadcast, reports, c, alpha)

    def _pull(self, lengths: Array, alpha: Array) -> Array:
        found: Array = alpha * np.minimum(1.0, self.tau / np.maximum(lengths, np.finfo(np.float64).tiny))
        return found

    def breakdown(self, support: int) -> Limit:
        return Limit(0.5)
