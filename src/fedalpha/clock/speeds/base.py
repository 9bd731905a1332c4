"""The interface of clocks."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedalpha.rng import generator, generators
from fedalpha.select import Population
from fedalpha.select.base import Ids
from fedalpha.strategies import Array
from fedalpha.text import Registry, Spelled


@dataclass(frozen=True)
class Moment:
    """The moment for which times are drawn: the seed, the round of the sent model, and all clients of the federation.

    ``part`` separates the draws of several clocks in one, such as computing and transfer.
    """

    seed: int
    round: int
    population: Population
    part: str = ""

    def purpose(self, name: str) -> str:
        return f"{name} {self.part}" if self.part else name


class Clock(Spelled, ABC):
    """The *clock* plug point."""

    @abstractmethod
    def seconds(self, moment: Moment, ids: Ids) -> Array:
        """The seconds that each of these clients takes to receive the model, train and send its update; > 0. Pure."""

    def drops(self, moment: Moment, ids: Ids) -> Array:
        """The share of its time after which each client drops out, NaN if it does not. Pure."""
        return np.full(len(ids), math.nan)

    def check(self, population: Any) -> None:
        """Raise ValueError if the clock cannot be used with these clients."""


CLOCKS: Registry[Clock] = Registry("clock", Clock, package=__package__)  # type: ignore[type-abstract]


class Drawn(Clock):
    """A clock that draws one number for each client, which is used in the whole run."""

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> float:
        """The seconds of one client."""

    def seconds(self, moment: Moment, ids: Ids) -> Array:
        draws = generators(moment.seed, moment.purpose("clock"), 0, ids.tolist())
        return np.array([self.draw(rng) for rng in draws], dtype=np.float64)


class Wrapped(Clock):
    """A clock that changes the times of another one."""

    clock: Clock | str = field(metadata={"positional": True})

    def __post_init__(self) -> None:
        object.__setattr__(self, "clock", CLOCKS.parse(self.clock))

    @property
    def inner(self) -> Clock:
        assert isinstance(self.clock, Clock)
        return self.clock

    def seconds(self, moment: Moment, ids: Ids) -> Array:
        return self.inner.seconds(moment, ids)

    def drops(self, moment: Moment, ids: Ids) -> Array:
        return self.inner.drops(moment, ids)

    def check(self, population: Any) -> None:
        self.inner.check(population)


def normal(moment: Moment, name: str, ids: Ids, each_round: bool) -> Array:
    """A standard normal number for each client, the same in every round or a new one in each."""
    round = moment.round if each_round else 0
    return np.array([generator(moment.seed, moment.purpose(name), round, i).standard_normal() for i in ids.tolist()])


def whole_population(moment: Moment) -> Ids:
    """The ids of all clients."""
    return moment.population.named(np.arange(moment.population.clients))


def with_part(moment: Moment, part: str) -> Moment:
    """The same moment for another part of the time, with its own draws."""
    return dataclasses.replace(moment, part=f"{moment.part} {part}".strip())
