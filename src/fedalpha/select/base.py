"""The interface of selections."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedalpha.strategies import Array, State
from fedalpha.text import Registry, Spelled

Ids = NDArray[np.int64]


class Ask(Protocol):
    """``ask(ids)``: the losses of the current model on those clients; with ``batch``, from so many samples."""

    def __call__(self, ids: Ids, batch: int | None = None) -> Array: ...


class Population(Protocol):
    """The registered clients, ids 0 … clients − 1."""

    clients: int

    def sizes(self, ids: Ids) -> Array: ...

    def optima(self, ids: Ids) -> Array | None: ...


class Select(Spelled, ABC):
    """The *select* plug point."""

    def init(self, n: int | None = None) -> State:
        return {}

    @abstractmethod
    def select(self, state: State, population: Population, ask: Ask, rng: np.random.Generator) -> tuple[Ids, State]:
        """Sorted ids of this round's cohort, and the next state. Pure."""

    def learn(self, state: State, ids: Ids, losses: Sequence[float]) -> State:
        """The state after the round: ``losses`` are the training losses that the clients reported. Pure."""
        return state


SELECTIONS: Registry[Select] = Registry("selection", Select)  # type: ignore[type-abstract]
