"""Rules that depend on lengths and angles only: the weighted geometric median and centred clipping.

Both iterate on the coefficients of a combination Σ c_i·x_i, whose distances to the x_i follow from the
Gram matrix: the models themselves are read twice, whatever the number of iterations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedalpha.combine.base import COMBINES, Reports
from fedalpha.combine.robust import Robust, combination, distances, gram, middle
from fedalpha.strategies import Array
from fedalpha.strategies.base import normalise
from fedalpha.update import Broadcast


@COMBINES.register(
    formula="argmin_y Σ alpha_i·‖w_i − y‖ (smoothed Weiszfeld)",
    reference="Pillutla et al., 2022, 1912.13445",
    examples=("geomed", "geomed(iterations=20)"),
)
@dataclass(frozen=True, eq=False, repr=False)
class geomed(Robust):  # noqa: N801 - written in lower case
    """The weighted geometric median; it breaks down only when the attackers hold half of alpha.

    ``smooth``: distances below this share of the median distance count as that much.
    """

    iterations: int = 100
    smooth: float = 1e-6

    text_name: ClassVar[str] = "geomed"

    def __post_init__(self) -> None:
        if self.iterations < 1 or not self.smooth > 0:
            raise ValueError(f"{self}: give iterations ≥ 1 and smooth > 0")

    def aggregate(self, broadcast: Broadcast, reports: Reports, alpha: Array) -> dict[str, Tensor]:
        products = gram(broadcast, reports)
        # Float64 cannot hold the honest distances beside those to a point 10¹⁵ times as far. Only the direction
        # of such a point matters: pull it in to a million typical norms.
        norms = np.sqrt(np.diagonal(products))
        reach = 1e6 * float(middle(torch.from_numpy(norms)[:, None], alpha))
        pulled = np.minimum(1.0, reach / np.maximum(norms, np.finfo(np.float64).tiny))
        squares = distances(products * pulled[:, None] * pulled[None, :])
        return combination(broadcast, reports, pulled * self.coefficients(squares, alpha), alpha)

    def coefficients(self, squares: Array, alpha: Array) -> Array:
        """c on the simplex, from the squared distances between the points."""
        # Begin at the medoid, a point of the cloud itself: nothing that an attacker sends is far from it.
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


@COMBINES.register(
    formula="y ← y + Σ alpha_i·(x_i − y)·min(1, tau/‖x_i − y‖), from y = 0",
    reference="Karimireddy et al., 2021, 2012.10333",
    examples=("centred(tau=1.0)", "centred(tau=1.0, iterations=3)"),
)
@dataclass(frozen=True, eq=False, repr=False)
class centred(Robust):  # noqa: N801
    """Centred clipping around the model that was sent: one iteration moves it by at most tau."""

    tau: float = field(default=1.0, metadata={"always": True})
    iterations: int = 1

    text_name: ClassVar[str] = "centred"

    def __post_init__(self) -> None:
        if not self.tau > 0 or self.iterations < 1:
            raise ValueError(f"{self}: give tau > 0 and iterations ≥ 1")

    def aggregate(self, broadcast: Broadcast, reports: Reports, alpha: Array) -> dict[str, Tensor]:
        products = gram(broadcast, reports)
        c = np.zeros(len(alpha))
        for _ in range(self.iterations):
            squares = np.diagonal(products) - 2 * (products @ c) + c @ products @ c
            lengths = np.sqrt(np.maximum(squares, 0.0))
            pull = alpha * np.minimum(1.0, self.tau / np.maximum(lengths, np.finfo(np.float64).tiny))
            c = c * (1 - pull.sum()) + pull
        return combination(broadcast, reports, c, alpha)
