"""Partitions that also change what clients hold: feature shift, label noise. They wrap another partition."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedalpha.data.partitions.base import PARTITIONS, Indices, Partition
from fedalpha.rng import generator


@dataclass(frozen=True, eq=False)
class Holding:
    """The samples of one of ``clients`` clients; ``test`` says that they are its own test part."""

    x: NDArray[Any]
    y: NDArray[Any]
    client: int
    clients: int
    classes: int
    seed: int
    test: bool = False


class Wrapper(Partition):
    """Splits as ``of`` does, then changes each client's samples. Wrappers can be nested."""

    of: Partition = field(default_factory=lambda: PARTITIONS.parse("iid"), metadata={"positional": True})

    def __post_init__(self) -> None:
        object.__setattr__(self, "of", PARTITIONS.parse(self.of))

    def owners(self, labels: Indices, clients: int, rng: np.random.Generator) -> Indices:
        return self.of.owners(labels, clients, rng)

    def altered(self, holding: Holding) -> Holding:
        """The samples after the changes of all wrappers, the innermost first."""
        return self.change(self.of.altered(holding) if isinstance(self.of, Wrapper) else holding)

    @abstractmethod
    def change(self, holding: Holding) -> Holding:
        """The samples after this wrapper's change; every draw comes from the seed and the client."""


def chosen(clients: int | float, holding: Holding, purpose: str) -> bool:
    """Whether the client is among ``clients`` drawn ones: a number of them, or a share."""
    count = clients if isinstance(clients, int) else round(clients * holding.clients)
    drawn = generator(holding.seed, purpose).permutation(holding.clients)[:count]
    return holding.client in drawn
