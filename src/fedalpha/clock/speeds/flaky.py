"""Clients that drop out while they train."""

from __future__ import annotations

import math
from dataclasses import field

import numpy as np

from fedalpha.clock.speeds.base import CLOCKS, Moment, Wrapped
from fedalpha.rng import generator
from fedalpha.select.base import Ids
from fedalpha.strategies import Array


@CLOCKS.register(
    formula="with probability p in each round a client is lost after a uniform share of its time",
    examples=("flaky(lognormal(sigma=1), p=0.1)",),
)
class flaky(Wrapped):
    """Clients drop out during training. The server notices this immediately."""

    p: float = field(default=0.1, metadata={"always": True})

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.p, bool) or not isinstance(self.p, int | float) or not 0 <= self.p <= 1:
            raise ValueError(f"flaky: p = {self.p!r}; give a probability in [0, 1]")

    def drops(self, moment: Moment, ids: Ids) -> Array:
        own = []
        for id in ids.tolist():
            happens, share = generator(moment.seed, moment.purpose("dropout"), moment.round, id).random(2).tolist()
            own.append(share if happens < self.p else math.nan)
        return np.asarray(np.fmin(super().drops(moment, ids), np.array(own)))
