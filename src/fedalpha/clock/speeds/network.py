"""Computing and transfer, each with its own clock."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np

from fedalpha.clock.speeds.base import CLOCKS, Clock, Moment, with_part
from fedalpha.select.base import Ids
from fedalpha.strategies import Array


@CLOCKS.register(
    formula="seconds of computing plus seconds of transfer, drawn independently",
    examples=("network(lognormal(sigma=1), exponential(mean=0.2))",),
)
class network(Clock):
    """A client computes for the seconds of one clock and transfers models for those of another."""

    compute: Clock | str = field(metadata={"positional": True})
    transfer: Clock | str = field(metadata={"positional": True})

    def __post_init__(self) -> None:
        for name in ("compute", "transfer"):
            object.__setattr__(self, name, CLOCKS.parse(getattr(self, name)))

    @property
    def _parts(self) -> tuple[Clock, Clock]:
        assert isinstance(self.compute, Clock)
        assert isinstance(self.transfer, Clock)
        return self.compute, self.transfer

    def seconds(self, moment: Moment, ids: Ids) -> Array:
        compute, transfer = self._parts
        return compute.seconds(moment, ids) + transfer.seconds(with_part(moment, "transfer"), ids)

    def drops(self, moment: Moment, ids: Ids) -> Array:
        """The share of the whole time: a client that is lost in the transfer is lost after it has computed."""
        compute, transfer = self._parts
        sending = with_part(moment, "transfer")
        first, second = compute.seconds(moment, ids), transfer.seconds(sending, ids)
        early = compute.drops(moment, ids) * first
        late = first + transfer.drops(sending, ids) * second
        return np.asarray(np.fmin(early, late) / (first + second))

    def check(self, population: Any) -> None:
        for part in self._parts:
            part.check(population)
