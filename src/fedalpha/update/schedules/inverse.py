"""The 1/t decay of the theory."""

from __future__ import annotations

from dataclasses import field

from fedalpha.update.schedules.base import SCHEDULES, Schedule, positive


@SCHEDULES.register(formula="lr·gamma/(r + gamma)", examples=("inverse(0.1, gamma=10)",))
class inverse(Schedule):
    """lr·gamma/(r + gamma), the 1/t decay of the theory.

    >>> inverse(0.1, gamma=10)(10)
    0.05
    """

    lr: float = field(metadata={"positional": True})
    gamma: float = 10.0

    def __post_init__(self) -> None:
        positive("inverse", lr=self.lr, gamma=self.gamma)

    def __call__(self, round: int) -> float:
        return self.lr * self.gamma / (round + self.gamma)
