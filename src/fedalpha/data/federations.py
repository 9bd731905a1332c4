"""A federation: clients with data, described rather than materialised.

`Pooled` holds all samples once, sorted by client, so that each client's part is a view;
`Generated` makes a client's samples when they are asked for, so a million registered clients
cost nothing. Anything with the same few methods works as well.
"""

from __future__ import annotations

import copy
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fedalpha.data.transforms import Change
from fedalpha.task import Task

Array = NDArray[np.float64]
Pair = tuple[Any, Any]


@dataclass(frozen=True, eq=False)
class Examples:
    """Samples x with targets y."""

    x: Tensor
    y: Tensor

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise ValueError(f"{len(self.x)} samples but {len(self.y)} targets: pass one target per sample")

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, part: slice | Tensor) -> Examples:
        return Examples(self.x[part], self.y[part])

    @staticmethod
    def of(data: Examples | Pair) -> Examples:
        """From tensors or arrays; float64 samples become float32, whole numbers int64 (uint8 pictures float32)."""
        if isinstance(data, Examples):
            return data
        try:
            x, y = (torch.as_tensor(part) for part in data)
        except (TypeError, ValueError) as error:
            raise ValueError(f"cannot read (X, y): {error}; give arrays or tensors, labels as 0, 1, 2 …") from None
        if x.dtype in (torch.float64, torch.uint8, torch.bool):
            x = x.to(torch.float32)
        elif not x.is_floating_point():
            x = x.to(torch.int64)
        y = y.to(torch.int64) if not y.is_floating_point() and y.dtype != torch.bool else y
        return Examples(x, y)


class Federation(ABC):
    """What the engine and the selection know about the clients; ids are 0 … clients − 1.

    ``test`` and ``validation`` belong to the server. ``test_owner`` gives the client of each test
    sample, where clients have test parts of their own. ``F_i*`` may be known (`optima`).
    """

    clients: int
    shape: tuple[int, ...]
    classes: int
    test: Examples
    validation: Examples | None = None
    test_owner: NDArray[np.int64] | None = None
    description: dict[str, Any]
    task: Task = Task()
    """What clients minimise, and what accuracy means."""
    transform: Change | None = None
    """A random change of the samples that clients train on."""
    names: tuple[str, ...] | None = None
    """What the clients are called, where they are people, places or roles."""
    words: tuple[str, ...] | None = None
    """The labels in words, where they were given so."""
    settings: dict[str, Any] | None = None
    """The settings of a run that make the same clients, if there are such."""

    def with_task(self, task: Task) -> Self:
        """The same clients with another task."""
        found = copy.copy(self)
        found.task = task
        return found

    def named(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The ids of the clients at these positions. In a simulation an id is its position."""
        return places

    @abstractmethod
    def sizes(self, ids: NDArray[np.int64]) -> Array:
        """The sample counts of ``ids``."""

    @abstractmethod
    def client(self, id: int) -> Examples:
        """The training data of one client."""

    def optima(self, ids: NDArray[np.int64]) -> Array | None:
        """The known F_i* of ``ids``, or None."""
        return None

    def digest(self) -> str:
        """A hash of the server's and the first client's data. A run folder with another hash holds another run."""
        return _digest(self.test, self.validation, self.client(0))


class Pooled(Federation):
    """All samples in memory, once, in client order."""

    def __init__(
        self,
        data: Examples,
        offsets: NDArray[np.int64],
        test: Examples,
        *,
        classes: int,
        validation: Examples | None = None,
        test_owner: NDArray[np.int64] | None = None,
        optima: ArrayLike | None = None,
        description: dict[str, Any] | None = None,
    ) -> None:
        self.data = data
        self.offsets = offsets
        self.clients = len(offsets) - 1
        self.shape = tuple(data.x.shape[1:])
        self.classes = classes
        self.test = test
        self.validation = validation
        self.test_owner = test_owner
        self.description = description or {}
        self._optima = None if optima is None else np.asarray(optima, dtype=np.float64)
        if self._optima is not None and self._optima.shape != (self.clients,):
            raise ValueError(f"optima has shape {self._optima.shape}: pass one F_i* for each of {self.clients} clients")

    def sizes(self, ids: NDArray[np.int64]) -> Array:
        return (self.offsets[ids + 1] - self.offsets[ids]).astype(np.float64)

    def client(self, id: int) -> Examples:
        return self.data[slice(int(self.offsets[id]), int(self.offsets[id + 1]))]

    def optima(self, ids: NDArray[np.int64]) -> Array | None:
        return None if self._optima is None else self._optima[ids]

    def digest(self) -> str:
        """A hash of all of the data."""
        known = () if self._optima is None else (self._optima,)
        return _digest(self.test, self.validation, self.data, self.sizes(np.arange(self.clients)), *known)

    @cached_property
    def label_counts(self) -> NDArray[np.int64] | None:
        """The table clients × classes of sample counts; None where targets are not labels."""
        y = self.data.y
        if y.is_floating_point() or y.ndim != 1:
            return None
        owner = np.repeat(np.arange(self.clients), np.diff(self.offsets))
        flat = np.bincount(owner * self.classes + y.numpy(), minlength=self.clients * self.classes)
        return flat.reshape(self.clients, self.classes).astype(np.int64)


class Generated(Federation):
    """Clients whose samples are made on demand: ``client(id) -> (x, y)``, the same every time.

    ``sizes(ids)`` must agree with what ``client`` returns; nothing is stored per client.
    """

    def __init__(
        self,
        clients: int,
        client: Callable[[int], Examples | Pair],
        sizes: Callable[[NDArray[np.int64]], ArrayLike],
        test: Examples | Pair,
        *,
        classes: int,
        validation: Examples | Pair | None = None,
        optima: Callable[[NDArray[np.int64]], ArrayLike] | None = None,
        description: dict[str, Any] | None = None,
    ) -> None:
        self.clients = clients
        self._client = client
        self._sizes = sizes
        self._optima = optima
        self.test = Examples.of(test)
        self.validation = None if validation is None else Examples.of(validation)
        self.shape = tuple(self.test.x.shape[1:])
        self.classes = classes
        self.description = description or {"clients": clients, "generated": True}

    def sizes(self, ids: NDArray[np.int64]) -> Array:
        return np.asarray(self._sizes(ids), dtype=np.float64)

    def client(self, id: int) -> Examples:
        return Examples.of(self._client(id))

    def optima(self, ids: NDArray[np.int64]) -> Array | None:
        return None if self._optima is None else np.asarray(self._optima(ids), dtype=np.float64)


def _digest(*parts: Examples | NDArray[Any] | None) -> str:
    found = hashlib.sha256()
    for part in parts:
        tensors = [torch.from_numpy(part)] if isinstance(part, np.ndarray) else [part.x, part.y] if part else []
        for tensor in tensors:
            found.update(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
            found.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
