"""The interface of selections."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from fedalpha.strategies import Array, State
from fedalpha.strategies.plug_point import PlugPoint
from fedalpha.text import Registry, Spelled

Ids = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Question:
    """Asks for the losses of the current model on these clients; with ``batch``, estimated from that many samples."""

    ids: Ids
    batch: int | None = None


class Population(Protocol):
    """The clients that can be selected: ``clients`` of them, sorted by id."""

    @property
    def clients(self) -> int: ...

    def named(self, places: Ids) -> Ids:
        """The ids of the clients at these places, 0 … clients − 1."""

    def sizes(self, ids: Ids) -> Array:
        """The sample counts of these clients; NaN where they are not known yet."""

    def optima(self, ids: Ids) -> Array | None:
        """The F_i* of these clients; None if unknown."""


class Select(Spelled, PlugPoint, ABC):
    """The *select* plug point."""

    sizes_first: ClassVar[bool] = False
    """Whether it needs every client's size; a live server then leaves out clients that do not tell theirs."""

    def init(self, n: int | None = None) -> State:
        return {}

    def ask(self, state: State, population: Population, rng: np.random.Generator) -> Question | None:
        """The clients whose losses the selection depends on; None if it depends on no losses. Pure."""
        return None

    @abstractmethod
    def select(
        self, state: State, population: Population, losses: Array | None, rng: np.random.Generator
    ) -> tuple[Ids, State]:
        """Sorted ids of this round's cohort, and the next state. Pure.

        ``losses`` answer the question of `ask`: aligned with its ids, NaN for clients that were refused. ``rng``
        starts in the same state as in `ask`, so a rule that drew candidates there draws the same ones again.
        """

    def chances(self, population: Population) -> Array | None:
        """The chance of each client, by place, to be in a cohort; None where it depends on losses or is not known."""
        return None

    def learn(self, state: State, ids: Ids, losses: Sequence[float]) -> State:
        """The state after the round: ``losses`` are the training losses that the clients reported. Pure."""
        return state


SELECTIONS: Registry[Select] = Registry("selection", Select, package=__package__)  # type: ignore[type-abstract]
