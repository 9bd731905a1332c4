"""Learning-rate schedules: functions of the round."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

from fedalpha.text import Registry, Spelled


class Schedule(Spelled, ABC):
    """The learning rate of a round."""

    @abstractmethod
    def __call__(self, round: int) -> float: ...


SCHEDULES: Registry[Schedule] = Registry("learning-rate schedule", Schedule)  # type: ignore[type-abstract]


def _positive(owner: str, **values: float) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise ValueError(f"{owner}: {name} = {value!r}; give a positive number")


@SCHEDULES.register(formula="lr", examples=("constant(0.1)",))
@dataclass(frozen=True, eq=False, repr=False)
class constant(Schedule):  # noqa: N801 - written in lower case
    """The same rate in every round.

    >>> constant(0.1)(7)
    0.1
    """

    lr: float = field(metadata={"positional": True})

    text_name: ClassVar[str] = "constant"

    def __post_init__(self) -> None:
        _positive("constant", lr=self.lr)

    def __call__(self, round: int) -> float:
        return self.lr


@SCHEDULES.register(formula="lr·rate^r", examples=("exponential(0.1, rate=0.99)",))
@dataclass(frozen=True, eq=False, repr=False)
class exponential(Schedule):  # noqa: N801
    """lr·rate^r, the paper's schedule with rate 0.99.

    >>> round(exponential(0.1)(2), 6)
    0.09801
    """

    lr: float = field(metadata={"positional": True})
    rate: float = 0.99

    text_name: ClassVar[str] = "exponential"

    def __post_init__(self) -> None:
        _positive("exponential", lr=self.lr, rate=self.rate)

    def __call__(self, round: int) -> float:
        return self.lr * self.rate**round


@SCHEDULES.register(formula="lr·gamma/(r + gamma)", examples=("inverse(0.1, gamma=10)",))
@dataclass(frozen=True, eq=False, repr=False)
class inverse(Schedule):  # noqa: N801
    """lr·gamma/(r + gamma), the 1/t decay of the theory.

    >>> inverse(0.1, gamma=10)(10)
    0.05
    """

    lr: float = field(metadata={"positional": True})
    gamma: float = 10.0

    text_name: ClassVar[str] = "inverse"

    def __post_init__(self) -> None:
        _positive("inverse", lr=self.lr, gamma=self.gamma)

    def __call__(self, round: int) -> float:
        return self.lr * self.gamma / (round + self.gamma)


@SCHEDULES.register(formula="lr·(1 + cos(π·min(1, r/rounds)))/2", examples=("cosine(0.1, rounds=100)",))
@dataclass(frozen=True, eq=False, repr=False)
class cosine(Schedule):  # noqa: N801
    """From lr in round 0 down to zero at ``rounds``.

    >>> cosine(0.2, rounds=100)(50)
    0.1
    """

    lr: float = field(metadata={"positional": True})
    rounds: int = field(default=100, metadata={"always": True})

    text_name: ClassVar[str] = "cosine"

    def __post_init__(self) -> None:
        _positive("cosine", lr=self.lr, rounds=self.rounds)

    def __call__(self, round: int) -> float:
        return self.lr * (1 + math.cos(math.pi * min(1.0, round / self.rounds))) / 2
