"""What `federation` accepts, each kind read into the same form: an `Input`.

The kinds: a data set that has a name, a torch ``Dataset``, a pair (X, y), a list with one (X, y) per client.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedalpha.data.federations import Examples
from fedalpha.data.partitions import Indices
from fedalpha.data.sets import Natural, Partitioned


@dataclass(frozen=True, eq=False)
class Input:
    """Training samples, and what is known of their clients and of the test part."""

    train: Examples
    sizes: list[int] | None = None
    """The number of samples of each client, in order; None if a partition will split them."""

    test: Examples | None = None
    test_owner: NDArray[np.int64] | None = None
    """The client of each test sample, where clients have test parts of their own."""

    def groups(self) -> list[Indices]:
        """The samples of each client; one group if a partition will split them."""
        ends = np.cumsum(self.sizes or [len(self.train)])
        return np.split(np.arange(ends[-1]), ends[:-1])

    def __post_init__(self) -> None:
        if not len(self.train):
            raise ValueError("the training data is empty; pass at least one sample")
        y = self.train.y
        if not y.is_floating_point() and y.min() < 0:
            raise ValueError(f"labels must be 0, 1, 2 …, but the smallest is {int(y.min())}; renumber them")


def from_partitioned(data: Partitioned, pixels: str) -> Input:
    """A data set that is one pool, with its published test part."""
    found = data.load()
    train = _pictures(found.train_x, found.train_y, data.scale, pixels)
    if found.test_x is None or found.test_y is None:
        return Input(train)
    return Input(train, test=_pictures(found.test_x, found.test_y, data.scale, pixels))


def from_natural(data: Natural, clients: int, seed: int, test: Any = None) -> Input:
    """A data set that comes client by client, with the clients' test parts where it has them."""
    found = data.make(clients, seed)
    own = [(one.test_x, one.test_y) for one in found if one.test_x is not None]
    return from_clients([(one.train_x, one.train_y) for one in found], own or None if test is None else test)


def from_clients(data: list[Any], test: Any = None, clients: int | None = None) -> Input:
    """A list with one (X, y) per client; ``clients`` is how many the user expects."""
    if clients not in (None, len(data)):
        raise ValueError(f"clients = {clients}, but the list holds the data of {len(data)} clients; leave clients out")
    parts = _parts(data)
    if isinstance(test, list) and len(test) != len(parts):
        raise ValueError(f"test has {len(test)} parts for {len(parts)} clients; give one part per client")
    return Input(_joined(parts), [len(part) for part in parts], *_test(test))


def from_samples(data: Any, test: Any = None) -> Input:
    """A pair (X, y) or a torch ``Dataset``: one pool."""
    return Input(_pool(data), None, *_test(test))


def _pool(data: Any) -> Examples:
    if isinstance(data, Examples | tuple):
        return Examples.of(data)
    if hasattr(data, "__len__") and hasattr(data, "__getitem__"):
        return _from_dataset(data)
    raise TypeError(
        f"cannot read data of type {type(data).__name__}; give a data set's name, a map-style Dataset, "
        "a pair (X, y) or a list with one (X, y) per client"
    )


def _from_dataset(data: Any) -> Examples:
    """All samples of a map-style ``Dataset`` of (x, y), read once."""
    samples = [data[i] for i in range(len(data))]
    return Examples.of((torch.stack([torch.as_tensor(x) for x, _ in samples]), torch.tensor([y for _, y in samples])))


def _test(data: Any) -> tuple[Examples | None, NDArray[np.int64] | None]:
    """The test part and the client of each of its samples, where it is a list with one part per client."""
    if data is None:
        return None, None
    if not isinstance(data, list):
        return _pool(data), None
    parts = _parts(data)
    return _joined(parts), np.repeat(np.arange(len(parts)), [len(part) for part in parts])


def _parts(data: list[Any]) -> list[Examples]:
    """The data of each client, from a list of (X, y)."""
    if not data:
        raise ValueError("the list of clients is empty; give one (X, y) per client")
    for i, pair in enumerate(data):
        if not isinstance(pair, Examples) and not (isinstance(pair, tuple | list) and len(pair) == 2):
            raise ValueError(f"client {i} of the list is not a pair (X, y); pooled data are a tuple (X, y), not a list")
    parts = [Examples.of(pair) for pair in data]
    for i, part in enumerate(parts):
        if not len(part):
            raise ValueError(f"client {i} has no samples; leave it out of the list")
    return parts


def _joined(parts: Sequence[Examples]) -> Examples:
    return Examples(torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts]))


def _pictures(x: NDArray[Any], y: NDArray[Any], scale: float, pixels: str) -> Examples:
    return Examples.of((_pixels(x, scale, pixels), y))


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
