"""The interface of staleness discounts."""

from __future__ import annotations

from abc import ABC, abstractmethod

from fedalpha.strategies.simplex import Array
from fedalpha.text import Registry, Spelled


class Discount(Spelled, ABC):
    """A function s(τ) of the staleness with s(0) = 1; see `stale`."""

    @abstractmethod
    def factors(self, staleness: Array) -> Array:
        """s(τ) > 0 of each update. Pure."""


DISCOUNTS: Registry[Discount] = Registry("staleness discount", Discount, package=__package__)  # type: ignore[type-abstract]
