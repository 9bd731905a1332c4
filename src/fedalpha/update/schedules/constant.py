"""The same learning rate in every round."""

from __future__ import annotations

from dataclasses import field

from fedalpha.update.schedules.base import SCHEDULES, Schedule, positive


@SCHEDULES.register(formula="lr", examples=("constant(0.1)",))
class constant(Schedule):
    """The same rate in every round.

    >>> constant(0.1)(7)
    0.1
    """

    lr: float = field(metadata={"positional": True})

    def __post_init__(self) -> None:
        positive("constant", lr=self.lr)

    def __call__(self, round: int) -> float:
        return self.lr
