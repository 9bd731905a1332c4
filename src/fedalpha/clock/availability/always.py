"""Clients that are always available."""

from __future__ import annotations

import math

from fedalpha.clock.availability.base import AVAILABILITIES, Availability


@AVAILABILITIES.register(formula="every client at any time")
class always(Availability):
    """Every client can be reached at any time."""

    def window(self, seed: int, client: int, time: float) -> tuple[float, float]:
        return 0.0, math.inf
