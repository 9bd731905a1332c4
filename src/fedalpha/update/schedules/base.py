"""The interface of learning-rate schedules."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from fedalpha.text import Registry, Spelled


class Schedule(Spelled, ABC):
    """The learning rate of a round."""

    @abstractmethod
    def __call__(self, round: int) -> float: ...


SCHEDULES: Registry[Schedule] = Registry("learning-rate schedule", Schedule, package=__package__)  # type: ignore[type-abstract]


def positive(owner: str, **values: float) -> None:
    """Refuse values that are not positive numbers."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise ValueError(f"{owner}: {name} = {value!r}; give a positive number")
