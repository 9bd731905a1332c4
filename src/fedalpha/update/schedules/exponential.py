"""A learning rate that falls by the same factor in every round."""

from __future__ import annotations

from dataclasses import field

from fedalpha.update.schedules.base import SCHEDULES, Schedule, positive


@SCHEDULES.register(formula="lr·rate^r", examples=("exponential(0.1, rate=0.99)",))
class exponential(Schedule):
    """lr·rate^r, the paper's schedule with rate 0.99.

    >>> round(exponential(0.1)(2), 6)
    0.09801
    """

    lr: float = field(metadata={"positional": True})
    rate: float = 0.99

    def __post_init__(self) -> None:
        positive("exponential", lr=self.lr, rate=self.rate)

    def __call__(self, round: int) -> float:
        return self.lr * self.rate**round
