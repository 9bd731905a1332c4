"""The interface of availabilities."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from fedalpha.text import Registry, Spelled


class Availability(Spelled, ABC):
    """The *availability* plug point: a client is sent a model only while it is available.

    A client that becomes unavailable while it trains is lost.
    """

    @abstractmethod
    def window(self, seed: int, client: int, time: float) -> tuple[float, float] | None:
        """The first interval [on, off) of availability with off > ``time``; None if there is none. Pure."""

    def check(self, population: Any) -> None:
        """Raise ValueError if the availability cannot be used with these clients."""


def check_period(rule: Availability, period: float, time: float) -> None:
    """Raise ValueError if float64 cannot distinguish the parts of a period at this time."""
    if period < 1e-9 * time:
        raise ValueError(f"{rule}: the period is too short after {time:g} simulated seconds; give a longer one")


AVAILABILITIES: Registry[Availability] = Registry(
    "availability",
    Availability,  # type: ignore[type-abstract]
    package=__package__,
)
