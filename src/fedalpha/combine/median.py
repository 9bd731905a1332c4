"""Coordinate-wise rules: the weighted median and the weighted trimmed mean."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from fedalpha.combine.base import COMBINES, Reports
from fedalpha.combine.robust import Robust, coordinatewise
from fedalpha.strategies import Array
from fedalpha.update import Broadcast


@COMBINES.register(formula="per coordinate: half of alpha below, half above", reference="Yin et al., 2018, 1803.01498")
@dataclass(frozen=True, eq=False, repr=False)
class median(Robust):  # noqa: N801 - written in lower case
    """The coordinate-wise weighted median; it breaks down only when the attackers hold half of alpha."""

    text_name: ClassVar[str] = "median"

    def aggregate(self, broadcast: Broadcast, reports: Reports, alpha: Array) -> dict[str, Tensor]:
        return coordinatewise(broadcast, reports, alpha, 0.5, 0.5)


@COMBINES.register(
    formula="per coordinate: the mean without the share beta of alpha at each end",
    reference="Yin et al., 2018, 1803.01498",
    examples=("trimmed(beta=0.2)",),
)
@dataclass(frozen=True, eq=False, repr=False)
class trimmed(Robust):  # noqa: N801
    """The coordinate-wise weighted trimmed mean: the share ``beta`` of the weight is cut off at each end, a
    client at the cut counts in part. beta = 0 is the mean; attackers with at most beta of alpha are harmless."""

    beta: float = field(default=0.2, metadata={"always": True})

    text_name: ClassVar[str] = "trimmed"

    def __post_init__(self) -> None:
        if not 0 <= self.beta < 0.5:
            raise ValueError(f"trimmed: beta = {self.beta!r}; give a share in [0, 0.5)")

    def aggregate(self, broadcast: Broadcast, reports: Reports, alpha: Array) -> dict[str, Tensor]:
        return coordinatewise(broadcast, reports, alpha, self.beta, 1 - self.beta)
