"""Clients that are available at the same time every day."""

from __future__ import annotations

import math
from functools import lru_cache

from fedalpha.clock.availability.base import AVAILABILITIES, Availability, check_period
from fedalpha.rng import generator
from fedalpha.strategies.arguments import positive


@AVAILABILITIES.register(
    formula="available for share·period seconds in each period, from a phase drawn for each client",
    examples=("diurnal(period=86400, share=0.3)", "diurnal(period=100, share=0.5, spread=0.2)"),
)
class diurnal(Availability):
    """Each client is available for a ``share`` of each ``period`` (seconds; a day by default), such as at night.

    With ``spread=1`` nights begin at any time of the day; with ``spread=0`` all clients have the same times.
    """

    period: float = 86400.0
    share: float = 0.5
    spread: float = 1.0

    def __post_init__(self) -> None:
        positive("diurnal", "period", self.period)
        for name, value, least in (("share", self.share, 1e-6), ("spread", self.spread, 0.0)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= 1:
                raise ValueError(f"diurnal: {name} = {value!r}; give a share from {least:g} to 1")

    def window(self, seed: int, client: int, time: float) -> tuple[float, float]:
        if self.share == 1:
            return 0.0, math.inf
        check_period(self, self.period, time)
        phase = _place(seed, client) * self.spread * self.period
        length = self.share * self.period
        number = math.floor((time - phase) / self.period) - 1
        while True:  # at most a few steps; the end decides, so that rounding never gives a window that is over
            start = phase + number * self.period
            if start + length > time:
                return start, start + length
            number += 1


@lru_cache(maxsize=2**16)
def _place(seed: int, client: int) -> float:
    """The start of a client's window within the period, from 0 to 1; called at every event of a run."""
    return float(generator(seed, "availability", 0, client).random())
