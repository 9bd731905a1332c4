"""The coordinate-wise weighted median."""

from __future__ import annotations

from torch import Tensor

from fedalpha.combine.base import COMBINES, Limit, Reports
from fedalpha.combine.robust import Robust, coordinatewise
from fedalpha.strategies import Array
from fedalpha.update import Broadcast


@COMBINES.register(formula="per coordinate: half of alpha below, half above", reference="Yin et al., 2018, 1803.01498")
class median(Robust):
    """The coordinate-wise weighted median; it breaks down only when the attackers hold half of alpha."""

    def aggregate(self, broadcast: Broadcast, reports: Reports, alpha: Array) -> dict[str, Tensor]:
        return coordinatewise(broadcast, reports, alpha, 0.5, 0.5)

    def breakdown(self, support: int) -> Limit:
        return Limit(0.5)
