"""The interface of learning-rate schedules."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from fedalpha.text import Registry, Spelled


class Schedule(Spelled, ABC):
    """The learning rate of a round."""

    @abstractmethod
    def __call__(self, round: int) -> float: ...

    def of(self, round: int, client: int) -> float:
        """The rate of one client; schedules that treat all clients alike need not define it."""
        return self(round)

    def suits(self, clients: int) -> None:
        """Raise ValueError if the schedule cannot be used with this many clients."""


SCHEDULES: Registry[Schedule] = Registry("learning-rate schedule", Schedule, package=__package__)  # type: ignore[type-abstract]


def positive(owner: str, **values: float) -> None:
    """Refuse values that are not positive numbers."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise ValueError(f"{owner}: {name} = {value!r}; give a positive number")
