"""A learning rate that rises in the first rounds."""

from dataclasses import field

from fedalpha.update.schedules import SCHEDULES, Schedule
from fedalpha.update.schedules.base import positive


@SCHEDULES.register(formula="lr·min(1, (r + 1)/over)", examples=("warmup(0.1, over=5)",))
class warmup(Schedule):
    """Rises to ``lr`` in ``over`` rounds of equal steps, then stays there."""

    lr: float = field(metadata={"positional": True})
    over: int = 5

    def __post_init__(self) -> None:
        positive("warmup", lr=self.lr, over=self.over)

    def __call__(self, round: int) -> float:
        return self.lr * min(1.0, (round + 1) / self.over)
