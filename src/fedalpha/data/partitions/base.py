"""What a partition is, and the registry of partitions."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedalpha.text import Registry, Spelled

Indices = NDArray[np.int64]


class Partition(Spelled, ABC):
    """Gives every sample to one client. Subclasses are frozen dataclasses; objects with equal text are equal."""

    def split(self, labels: ArrayLike, clients: int, rng: np.random.Generator) -> list[Indices]:
        """The sorted sample indices of each client: every sample exactly once, and no client without samples."""
        y = np.asarray(labels)
        if y.ndim != 1:
            raise ValueError(f"labels must be one-dimensional, got shape {y.shape}; pass one label per sample")
        if clients < 1:
            raise ValueError(f"clients is {clients}: give a whole number ≥ 1")
        if len(y) < clients:
            raise ValueError(
                f"{len(y)} samples cannot be split over {clients} clients, at least one each; use fewer clients"
            )
        codes = np.unique(y, return_inverse=True)[1].astype(np.int64)
        owners = self.owners(codes, clients, rng)
        sizes = np.bincount(owners, minlength=clients)
        return np.split(np.argsort(owners, kind="stable"), np.cumsum(sizes)[:-1])

    @abstractmethod
    def owners(self, labels: Indices, clients: int, rng: np.random.Generator) -> Indices:
        """The client (0 … clients − 1, each at least once) of every sample; labels count from 0."""


PARTITIONS: Registry[Partition] = Registry("partition", Partition, package=__package__)  # type: ignore[type-abstract]
"""Every partition that can be written as text."""
