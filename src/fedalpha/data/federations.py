"""A federation: clients with data, described rather than materialised.

`Pooled` holds all samples once, sorted by client, so that each client's part is a view;
`Generated` makes a client's samples when they are asked for, so a million registered clients
cost nothing. Any object with the same methods works as well.
"""

from __future__ import annotations

import copy
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fedalpha.data.transforms import Change
from fedalpha.store.exports import html_table
from fedalpha.task import Task
from fedalpha.text import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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

    def __repr__(self) -> str:
        shape = f"{self.shape[0]} features" if len(self.shape) == 1 else f"shape {self.shape}"
        parts = [counted(self.clients, "client"), *self._contents(), shape]
        given = [f"{key} = {self.description[key]}" for key in ("partition", "seed") if key in self.description]
        name = self.description.get("dataset")
        return f"{type(self).__name__}({f'{name}: ' if name else ''}{', '.join([*parts, *given])})"

    def _contents(self) -> list[str]:
        """What the clients and the server hold, in words."""
        kinds = [counted(self.classes, "class", "classes")] if self.task.correct is not None and self.classes else []
        if self.test.y.is_floating_point():
            kinds = [counted(self.classes, "value to predict", "values to predict")]
        held = [f"{len(self.test):,} test samples"]
        held += [f"{len(self.validation):,} validation samples"] if self.validation is not None else []
        return [*kinds, *held]

    def with_task(self, task: Task) -> Self:
        """The same clients with another task."""
        if not isinstance(task, Task):
            raise TypeError(
                f"task = {task!r} is not a task; give fedalpha.Task(loss=…), or in federation(…) a name: 'mse'"
            )
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

    def _contents(self) -> list[str]:
        sizes = np.diff(self.offsets)
        each = f"{sizes.min():,}" if sizes.min() == sizes.max() else f"{sizes.min():,}–{sizes.max():,}"
        return [f"{len(self.data):,} training samples ({each} a client)", *super()._contents()]

    def _repr_html_(self) -> str:
        """A short table for notebooks."""
        sizes = np.diff(self.offsets)
        rows = [("samples per client", sizes)]
        counts = self.label_counts
        if counts is not None:
            rows += [("labels per client", (counts > 0).sum(axis=1))]
        lines = [[name, *(f"{f(v):g}" for f in (np.min, np.median, np.max))] for name, v in rows]
        return html_table(repr(self), ["", "min", "median", "max"], lines)

    def plot(self, ax: Axes | None = None, title: str = "") -> Figure:
        """Draw how many samples of each label the clients have; returns the figure.

        Below the sizes, the share of each label in each client. On an axis ``ax`` of your own only the sizes are drawn.
        """
        from fedalpha.data.picture import partition_figure

        counts = self.label_counts
        if counts is None:  # targets are not labels: sizes alone
            counts = np.diff(self.offsets)[:, None].astype(np.int64)
            names: tuple[str, ...] = ("samples",)
        else:
            names = self.words or self._class_names(counts.shape[1])
        known = [str(self.description[key]) for key in ("dataset", "partition") if key in self.description]
        return partition_figure(counts, names, title or ", ".join(known), ax)

    def _class_names(self, kinds: int) -> tuple[str, ...]:
        from fedalpha.data.sets import DATASETS

        source = DATASETS.parse(self.settings["dataset"]) if self.settings else None
        names = tuple(getattr(source, "class_names", ()))
        return names if len(names) >= kinds else tuple(str(k) for k in range(kinds))

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
