"""A federation: clients with data, described rather than materialised.

`Pooled` holds all samples once, sorted by client, so that each client's part is a view;
`Generated` makes a client's samples when they are asked for, so a million registered clients
cost nothing. Anything with the same few methods works as well.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fedalpha.data.partitions import PARTITIONS, Partition
from fedalpha.data.sources import load
from fedalpha.data.synthetic import MADE
from fedalpha.rng import generator

if TYPE_CHECKING:
    from torch.utils.data import Dataset

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
        """From tensors or arrays; float64 samples become float32, integer targets int64."""
        if isinstance(data, Examples):
            return data
        try:
            x, y = (torch.as_tensor(part) for part in data)
        except (TypeError, ValueError) as error:
            raise ValueError(f"cannot read (X, y): {error}; give arrays or tensors, labels as 0, 1, 2 …") from None
        x = x.to(torch.float32) if x.dtype == torch.float64 or not x.is_floating_point() else x
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
        """A hash of the data, to tell whether a folder holds the same run: the server's and the first client's."""
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


def federation(
    data: str | Dataset[Any] | Pair | Sequence[Pair],
    *,
    partition: str | Partition = "iid",
    clients: int | None = None,
    seed: int = 0,
    validation: float = 0.0,
    test: Dataset[Any] | Pair | Sequence[Pair] | None = None,
    pixels: str = "unit",
    optima: ArrayLike | None = None,
) -> Pooled:
    """A federation from a named data set, a torch ``Dataset``, tensors, or per-client data.

    ``data``: a name (``digits``, ``mnist``, ``fashion-mnist``, ``synthetic(a=1, b=1)``), a map-style ``Dataset``
    of (x, y), a pair ``(X, y)`` (a tuple), or a list with one ``(X, y)`` per client, which needs no partition. ``test``
    is data of the same kinds; a list holds one part per client. Without it a stratified fifth is set aside.
    ``clients``: 10 unless the data are given client by client.
    ``validation`` is the share of the training data kept at the server for accuracy switches.
    ``pixels``: unit (0–1), raw (as stored) or standard (mean 0, deviation 1).

    >>> federation("digits", partition="shards(size=30)", clients=20, seed=0).clients
    20
    """
    if not 0 <= validation < 1:
        raise ValueError(f"validation = {validation}; give a share of the training data in [0, 1)")
    split = PARTITIONS.parse(partition)
    if isinstance(data, list) and clients not in (None, len(data)):
        raise ValueError(f"clients = {clients}, but the list holds the data of {len(data)} clients; leave clients out")
    clients = 10 if clients is None else clients
    description: dict[str, Any] = {"clients": clients, "partition": str(split), "seed": seed, "validation": validation}
    owners: NDArray[np.int64] | None = None
    held: Examples | None
    parts: list[Examples] | None = None
    if isinstance(data, str) and data.partition("(")[0] in MADE:
        description["dataset"] = data
        data = list(MADE.parse(data).make(clients, seed))
    if isinstance(data, str):
        source = load(data)
        train, held = (
            Examples(_pixels(x, source.scale, pixels), torch.from_numpy(np.asarray(y)).to(torch.int64))
            for x, y in ((source.train_x, source.train_y), (source.test_x, source.test_y))
        )
        description = {"dataset": data, "pixels": pixels, **description}
    elif isinstance(data, list):
        parts = _parts(data)
        train = Examples(torch.cat([p.x for p in parts]), torch.cat([p.y for p in parts]))
        held, owners = _test_parts(test) if test is not None else (None, None)
        description |= {"clients": len(parts), "partition": "given"}
    else:
        train = _examples(data)
        held, owners = _test_parts(test) if test is not None else (None, None)
    if not len(train):
        raise ValueError("the training data is empty; pass at least one sample")
    if parts is not None and isinstance(test, list) and len(test) != len(parts):
        raise ValueError(f"test has {len(test)} parts for {len(parts)} clients; give one part per client")
    if not train.y.is_floating_point() and train.y.min() < 0:
        raise ValueError(f"labels must be 0, 1, 2 …, but the smallest is {int(train.y.min())}; renumber them")
    groups = [np.arange(len(train))] if parts is None else _ranges([len(p) for p in parts])
    if held is None:
        keep, away = zip(*(_stratified(train.y, g, 0.2, generator(seed, "test")) for g in groups), strict=True)
        groups, held = list(keep), train[torch.from_numpy(np.concatenate(away))]
        if parts is not None:
            owners = np.repeat(np.arange(len(parts)), [len(a) for a in away])
    aside = None
    if validation:
        keep, away = zip(
            *(
                _stratified(train.y, g, validation, generator(seed, "validation", client=i))
                for i, g in enumerate(groups)
            ),
            strict=True,
        )
        groups, aside = list(keep), train[torch.from_numpy(np.concatenate(away))]
    if parts is None:
        (everyone,) = groups
        # Without labels (regression) there is nothing to stratify by: everybody counts as one label.
        labelled = train.y.dim() == 1 and not train.y.is_floating_point()
        labels = train.y[torch.from_numpy(everyone)].numpy() if labelled else np.zeros(len(everyone), dtype=np.int64)
        groups = [everyone[part] for part in split.split(labels, clients, generator(seed, "partition"))]
    if any(len(g) == 0 for g in groups):
        raise ValueError("a client has no training samples left; give every client more data or lower validation")
    order = torch.from_numpy(np.concatenate(groups))
    integer = not train.y.is_floating_point()
    return Pooled(
        train[order],
        np.concatenate([[0], np.cumsum([len(g) for g in groups])]),
        held,
        classes=int(max(train.y.max(), held.y.max())) + 1 if integer else int(np.prod(train.y.shape[1:])),
        validation=aside,
        test_owner=owners,
        optima=optima,
        description=description,
    )


def _digest(*parts: Examples | NDArray[Any] | None) -> str:
    found = hashlib.sha256()
    for part in parts:
        tensors = [torch.from_numpy(part)] if isinstance(part, np.ndarray) else [part.x, part.y] if part else []
        for tensor in tensors:
            found.update(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
            found.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _pixels(x: NDArray[Any], scale: float, kind: str) -> Tensor:
    values = torch.from_numpy(np.array(x, dtype=np.float32))
    if kind == "raw":
        return values
    values /= scale
    if kind == "unit":
        return values
    if kind == "standard":
        return (values - values.mean()) / values.std()
    raise ValueError(f"pixels = {kind!r} is not one of unit, raw, standard")


def _examples(data: Any) -> Examples:
    if isinstance(data, Examples | tuple):
        return Examples.of(data)
    if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        raise TypeError(
            f"cannot read data of type {type(data).__name__}; give a data set's name, a map-style Dataset, "
            "a pair (X, y) or a list with one (X, y) per client"
        )
    samples = [data[i] for i in range(len(data))]
    return Examples.of((torch.stack([torch.as_tensor(x) for x, _ in samples]), torch.tensor([y for _, y in samples])))


def _parts(data: list[Any]) -> list[Examples]:
    """The data of each client, from a list of (X, y)."""
    if not data:
        raise ValueError("the list of clients is empty; give one (X, y) per client")
    for i, pair in enumerate(data):
        if not isinstance(pair, Examples) and not (isinstance(pair, tuple | list) and len(pair) == 2):
            raise ValueError(f"client {i} of the list is no pair (X, y); pooled data are a tuple (X, y), not a list")
    parts = [Examples.of(pair) for pair in data]
    for i, part in enumerate(parts):
        if not len(part):
            raise ValueError(f"client {i} has no samples; leave it out of the list")
    return parts


def _test_parts(data: Any) -> tuple[Examples, NDArray[np.int64] | None]:
    if not isinstance(data, list):
        return _examples(data), None
    parts = _parts(data)
    pooled = Examples(torch.cat([p.x for p in parts]), torch.cat([p.y for p in parts]))
    return pooled, np.repeat(np.arange(len(parts)), [len(p) for p in parts])


def _ranges(lengths: list[int]) -> list[NDArray[np.int64]]:
    ends = np.cumsum(lengths)
    return [np.arange(end - length, end) for end, length in zip(ends, lengths, strict=True)]


def _stratified(
    y: Tensor, group: NDArray[np.int64], share: float, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split ``group`` into (kept, set aside), the same share of each label where there are labels."""
    if y.is_floating_point():
        shuffled = rng.permutation(group)
    else:
        labels = y[torch.from_numpy(group)].numpy().reshape(len(group), -1)[:, 0]
        shuffled = rng.permutation(group)
        ranks = labels[np.searchsorted(group, shuffled)]
        # Spread each label evenly over (0, 1): the first `share` of that order is a stratified sample.
        place = np.empty(len(group))
        for label in np.unique(ranks):
            mine = np.flatnonzero(ranks == label)
            place[mine] = (np.arange(len(mine)) + 0.5) / len(mine)
        shuffled = shuffled[np.argsort(place, kind="stable")]
    count = min(round(share * len(group)), len(group) - 1)
    return np.sort(shuffled[count:]), np.sort(shuffled[:count])
