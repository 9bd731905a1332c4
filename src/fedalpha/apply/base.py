"""The interface of apply rules."""

from __future__ import annotations

from abc import ABC, abstractmethod

from fedalpha.strategies import State
from fedalpha.strategies.plug_point import PlugPoint
from fedalpha.text import Registry, Spelled
from fedalpha.update import Broadcast


class Apply(Spelled, PlugPoint, ABC):
    """The *apply* plug point."""

    def init(self) -> State:
        return {}

    @abstractmethod
    def apply(self, state: State, broadcast: Broadcast, aggregate: Broadcast) -> tuple[Broadcast, State]:
        """The next broadcast and state. Pure."""


APPLIES: Registry[Apply] = Registry("apply rule", Apply, package=__package__)  # type: ignore[type-abstract]
