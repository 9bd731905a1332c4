"""What a data set is, and the registry of data sets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedalpha.data.fetching import Files
from fedalpha.data.partitions import Indices, Partition
from fedalpha.rng import generator
from fedalpha.text import Registry, Spelled, nearest


@dataclass(frozen=True, eq=False)
class Samples:
    """Training samples x with targets y, and test samples. Without them a fifth of the training data is set aside."""

    train_x: NDArray[Any]
    train_y: NDArray[Any]
    test_x: NDArray[Any] | None = None
    test_y: NDArray[Any] | None = None
    name: str = ""
    """Whose they are, where clients are people, places or roles."""


class DataSet(Spelled, ABC):
    """A data set that has a name. Subclass `Partitioned` or `Natural`; what is a property here may be a plain
    class attribute there.
    """

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""

    @property
    @abstractmethod
    def class_names(self) -> tuple[str, ...]:
        """One name per label; empty where the targets are not labels."""

    @property
    def classes(self) -> int | None:
        """The number of classes, where not every one need occur in the data; None: as many as the data show."""
        return None

    @property
    def model(self) -> str:
        """The model that a run trains unless it names another."""
        return "mlp"

    @property
    def samples(self) -> tuple[int, int] | None:
        """How many samples there are to train and to test; None where that depends on the clients."""
        return None

    @property
    def files(self) -> Files | None:
        """The files to fetch; None where there is nothing to fetch."""
        return None

    @property
    def megabytes(self) -> float:
        """The size of the files."""
        return 0.0

    def origin(self) -> tuple[bool, str]:
        """Whether the data are on this machine, and where they are or would come from."""
        return (True, "made on demand") if self.files is None else self.files.origin()

    def fetch(self) -> Path | None:
        """Fetch the data if they are missing or damaged. Returns where they are; None if they are made on demand."""
        if self.files is None:
            return None
        self.files.obtain()
        return self.files.folder

    @abstractmethod
    def holdings(self, partition: Partition, clients: int, seed: int) -> tuple[NDArray[Any], list[Indices]]:
        """All training targets, and which of the samples each client holds."""


class Partitioned(DataSet):
    """A data set that is one pool of samples; a partition splits it over clients."""

    @property
    def scale(self) -> float:
        """The stored value that becomes 1.0."""
        return 1.0

    @abstractmethod
    def load(self) -> Samples:
        """The samples as they were published; fetched first if necessary."""

    def holdings(self, partition: Partition, clients: int, seed: int) -> tuple[NDArray[Any], list[Indices]]:
        y = self.load().train_y
        return y, partition.split(y, clients, generator(seed, "partition"))


class Natural(DataSet):
    """A data set that comes client by client and needs no partition."""

    @abstractmethod
    def make(self, clients: int, seed: int) -> list[Samples]:
        """The samples of each of ``clients`` clients: the same for the same arguments."""

    @property
    def population(self) -> int | None:
        """How many clients there are; None where any number can be made."""
        return None

    def choose(self, names: Sequence[str], clients: int, seed: int) -> list[int]:
        """Which of the clients of these names take part: all of them, in order, or ``clients`` drawn ones."""
        if not 1 <= clients <= len(names):
            raise ValueError(f"{self} has {len(names)} clients, not {clients}; give clients = 1 to {len(names)}")
        return sorted(generator(seed, "clients").permutation(len(names))[:clients].tolist())

    def holdings(self, partition: Partition, clients: int, seed: int) -> tuple[NDArray[Any], list[Indices]]:
        targets = [one.train_y.reshape(len(one.train_y), -1)[:, 0] for one in self.make(clients, seed)]
        ends = np.cumsum([len(y) for y in targets])
        return np.concatenate(targets), np.split(np.arange(ends[-1]), ends[:-1])


class _DataSets(Registry[DataSet]):
    """A name may hold hyphens, as in ``fashion-mnist``. Such a name takes no arguments."""

    def parse(self, text: str | DataSet) -> DataSet:
        if not isinstance(text, str) or "-" not in text.partition("(")[0]:
            return super().parse(text)
        known = {entry.name: entry for entry in self}
        if text.strip() not in known:
            raise ValueError(f"unknown {self.kind} {text!r}; {nearest(text, known)}")
        return known[text.strip()].make()


DATASETS: Registry[DataSet] = _DataSets("data set", DataSet, package=__package__)  # type: ignore[type-abstract]
"""Every data set that has a name."""
