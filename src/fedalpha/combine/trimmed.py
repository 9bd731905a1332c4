"""The coordinate-wise weighted trimmed mean."""

from __future__ import annotations

from dataclasses import field

from torch import Tensor

from fedalpha.combine.base import COMBINES, Limit, Reports
from fedalpha.combine.robust import Robust, coordinatewise
from fedalpha.strategies import Array
from fedalpha.update import Broadcast


@COMBINES.register(
    formula="per coordinate: the mean without the share beta of alpha at each end",
    reference="Yin et al., 2018, 1803.01498",
    examples=("trimmed(beta=0.2)",),
)
class trimmed(Robust):
    """The coordinate-wise weighted trimmed mean: the share ``beta`` of the weight is cut off at each end.

    A client at the cut counts in part. beta = 0 is the mean. Attackers with at most beta of alpha cannot move the
    result arbitrarily.
    """

    beta: float = field(default=0.2, metadata={"always": True})

    def __post_init__(self) -> None:
        if not 0 <= self.beta < 0.5:
            raise ValueError(f"trimmed: beta = {self.beta!r}; give a share in [0, 0.5)")

    def aggregate(self, broadcast: Broadcast, reports: Reports, alpha: Array) -> dict[str, Tensor]:
        return coordinatewise(broadcast, reports, alpha, self.beta, 1 - self.beta)

    def breakdown(self, support: int) -> Limit:
        return Limit(self.beta, inclusive=True)
