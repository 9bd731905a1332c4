"""A learning rate that falls to zero along a cosine."""

from __future__ import annotations

import math
from dataclasses import field

from fedalpha.update.schedules.base import SCHEDULES, Schedule, positive


@SCHEDULES.register(formula="lr·(1 + cos(π·min(1, r/rounds)))/2", examples=("cosine(0.1, rounds=100)",))
class cosine(Schedule):
    """From lr in round 0 down to zero at ``rounds``.

    >>> cosine(0.2, rounds=100)(50)
    0.1
    """

    lr: float = field(metadata={"positional": True})
    rounds: int = field(default=100, metadata={"always": True})

    def __post_init__(self) -> None:
        positive("cosine", lr=self.lr, rounds=self.rounds)

    def __call__(self, round: int) -> float:
        return self.lr * (1 + math.cos(math.pi * min(1.0, round / self.rounds))) / 2
