"""The weighted geometric median.

The iteration uses the coefficients of a combination Σ c_i·x_i, whose distances to the x_i follow from the
Gram matrix. The models themselves are read twice, whatever the number of iterations.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedalpha.combine.base import COMBINES, Limit, Reports
from fedalpha.combine.robust import Robust, combination, distances, middle
from fedalpha.strategies import Array
from fedalpha.strategies.simplex import normalise
from fedalpha.update import Broadcast


@COMBINES.register(
    formula="argmin_y Σ alpha_i·‖w_i − y‖ (smoothed Weiszfeld)",
    reference="Pillutla et al., 2022, 1912.13445",
    examples=("geomed", "geomed(iterations=20)"),
)
class geomed(Robust):
    """The weighted geometric median; it breaks down only when the attackers hold half of alpha.

    ``smooth``: smaller distances are replaced by this share of the median distance.
    """

    iterations: int = 100
    smooth: float = 1e-6

    def __post_init__(self) -> None:
        if self.iterations < 1 or not self.smooth > 0:
            raise ValueError(f"{self}: give iterations ≥ 1 and smooth > 0")

    def aggregate(self, broadcast: Broadcast, reports: Reports, alpha: Array) -> dict[str, Tensor]:
        products = reports.gram(broadcast)
        # Float64 cannot hold the honest distances beside those to a point 10¹⁵ times as far. Only the direction
        # of such a point matters: pull it in to a million typical norms.
        norms = np.sqrt(np.diagonal(products))
        reach = 1e6 * float(middle(torch.from_numpy(norms)[:, None], alpha))
        pulled = np.minimum(1.0, reach / np.maximum(norms, np.finfo(np.float64).tiny))
        squares = distances(products * pulled[:, None] * pulled[None, :])
        return combination(broadcast, reports, pulled * self.coefficients(squares, alpha), alpha)

    def coefficients(self, squares: Array, alpha: Array) -> Array:
        """c on the simplex, from the squared distances between the points."""
        # Start at the medoid, one of the points, so that an attacker cannot move the start far away.
        c = np.zeros(len(alpha))
        c[np.argmin(np.sqrt(squares) @ alpha)] = 1.0
        for _ in range(self.iterations):
            to_y = np.sqrt(np.maximum(squares @ c - 0.5 * (c @ squares @ c), 0.0))
            floor = self.smooth * float(np.median(to_y)) or np.finfo(np.float64).tiny
            following = normalise(alpha / np.maximum(to_y, floor))
            if np.abs(following - c).max() < 1e-10:
                return following
            c = following
        return c

    def breakdown(self, support: int) -> Limit:
        return Limit(0.5)
