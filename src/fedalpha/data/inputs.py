"""What `federation` accepts, each kind read into the same form: an `Input`.

The kinds: a data set that has a name, a torch ``Dataset``, a pair (X, y), a list with one of these per client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedalpha.data.federations import Examples
from fedalpha.data.partitions import Indices
from fedalpha.data.reading import Raw, Reader, numbered
from fedalpha.data.sets import Natural, Partitioned

PIXELS = ("unit", "raw", "standard")


@dataclass(frozen=True, eq=False)
class Input:
    """Training samples, and what is known of their clients and of the test part."""

    train: Examples
    sizes: list[int] | None = None
    """The number of samples of each client, in order; None if a partition will split them."""

    test: Examples | None = None
    test_owner: NDArray[np.int64] | None = None
    """The client of each test sample, where clients have test parts of their own."""

    names: tuple[str, ...] | None = None
    """What the clients are called, where they are people, places or roles."""

    classes: int | None = None
    """The number of classes, if it is known apart from the samples."""

    words: tuple[str, ...] | None = None
    """The labels in words."""

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
        if self.test is not None:
            _same_form(self.train, self.test, "the training data", "the test data")

    def given_to(self, parts: Sequence[Sequence[int]]) -> Input:
        """The samples in the order of clients that hold these indices."""
        found = [np.asarray(part, dtype=np.int64).reshape(-1) for part in parts]
        everything = np.concatenate(found) if found else np.empty(0, np.int64)
        for i, part in enumerate(found):
            if not len(part):
                raise ValueError(f"client {i} of the partition has no samples; leave it out")
        if len(everything) and not 0 <= everything.min() <= everything.max() < len(self.train):
            raise ValueError(
                f"the partition names sample {int(everything.max())} or {int(everything.min())}, but the samples are "
                f"0 … {len(self.train) - 1}; indices count the training data"
            )
        counts = np.bincount(everything, minlength=1)
        if not len(found) or counts.max() > 1:
            twice = int(np.argmax(counts))
            raise ValueError(f"the partition gives sample {twice} to two clients; give every sample to one client")
        train = self.train[torch.from_numpy(everything)]
        return Input(train, [len(p) for p in found], self.test, None, None, self.classes, self.words)


def index_lists(partition: Any) -> list[Any] | None:
    """The indices of each client, if a partition is given as such: a list, or a mapping from client to indices."""
    if isinstance(partition, Mapping):
        return [partition[key] for key in sorted(partition)]
    if not isinstance(partition, list | tuple):
        return None
    for part in partition:
        if np.asarray(part).dtype.kind not in "iu" and len(part):
            raise ValueError("a partition that is a list holds the whole-number sample indices of each client")
    return list(partition)


def from_partitioned(data: Partitioned, pixels: str | None, test: Any, reader: Reader) -> Input:
    """A data set that is one pool, with its published test part or the user's."""
    found = data.load()
    kind = _kind(pixels)
    x, y = (torch.from_numpy(np.array(a)) for a in (found.train_x, found.train_y))
    train_x = _scaled(x, x, data.scale, kind)
    if test is not None:
        given = from_samples((train_x, y), test, reader, None)
        return Input(given.train, None, given.test, given.test_owner, classes=data.classes)
    if found.test_x is None or found.test_y is None:
        return Input(Examples(train_x, y), classes=data.classes)
    published = torch.from_numpy(np.array(found.test_x))
    # Grey pictures are standardised part by part, colour ones channel by channel as the training part is.
    like = published if published.dim() < 4 or published.shape[1] == 1 else x
    part = Examples(_scaled(published, like, data.scale, kind), torch.from_numpy(np.array(found.test_y)))
    return Input(Examples(train_x, y), test=part, classes=data.classes)


def from_natural(data: Natural, clients: int, seed: int, test: Any, reader: Reader, pixels: str | None) -> Input:
    """A data set that comes client by client, with the clients' test parts where it has them."""
    if pixels not in (None, "unit"):
        raise ValueError(f"pixels = {pixels!r} applies to pictures; {data} holds none, leave pixels out")
    found = data.make(clients, seed)
    own = [(one.test_x, one.test_y) for one in found if one.test_x is not None]
    names = tuple(one.name for one in found) if all(one.name for one in found) else None
    pairs = [(one.train_x, one.train_y) for one in found]
    return from_clients(pairs, own or None if test is None else test, reader, None, names=names, classes=data.classes)


def from_clients(
    data: list[Any],
    test: Any,
    reader: Reader,
    pixels: str | None,
    clients: int | None = None,
    names: tuple[str, ...] | None = None,
    classes: int | None = None,
) -> Input:
    """A list with the data of each client; ``clients`` is how many the user expects."""
    if clients not in (None, len(data)):
        raise ValueError(f"clients = {clients}, but the list holds the data of {len(data)} clients; leave clients out")
    if not data:
        raise ValueError("the list of clients is empty; give one (X, y) per client")
    if isinstance(test, list) and len(test) != len(data):
        raise ValueError(f"test has {len(test)} parts for {len(data)} clients; give one part per client")
    parts = [_client(reader, part, i) for i, part in enumerate(data)]
    tests, owner = _tests(reader, test)
    examples, words = numbered([*parts, *tests])
    train = _joined(examples[: len(parts)])
    found = _joined(examples[len(parts) :]) if tests else None
    train, found = _pictures(train, found, pixels)
    return Input(train, [len(x) for x, _ in parts], found, owner, names, classes, words)


def from_samples(data: Any, test: Any, reader: Reader, pixels: str | None) -> Input:
    """A pair (X, y) or a torch ``Dataset``: one pool."""
    tests, owner = _tests(reader, test)
    (train, *examples), words = numbered([reader.read(data), *tests])
    return Input(*_pooled(train, examples, pixels), owner, words=words)


def _pooled(train: Examples, tests: list[Examples], pixels: str | None) -> tuple[Examples, None, Examples | None]:
    train, test = _pictures(train, _joined(tests) if tests else None, pixels)
    return train, None, test


def _client(reader: Reader, data: Any, place: int) -> Raw:
    if isinstance(data, Tensor | np.ndarray | str | int | float):
        raise ValueError(f"client {place} of the list is not a pair (X, y); pooled data are a tuple (X, y), not a list")
    try:
        found = reader.read(data)
    except (TypeError, ValueError) as error:
        raise ValueError(f"client {place} of the list: {error}") from None
    if not len(found[0]):
        raise ValueError(f"client {place} has no samples; leave it out of the list")
    return found


def _tests(reader: Reader, test: Any) -> tuple[list[Raw], NDArray[np.int64] | None]:
    """The test parts; and the client of each sample, where ``test`` is a list with one part per client."""
    if test is None:
        return [], None
    if not isinstance(test, list):
        try:
            return [reader.read(test)], None
        except (TypeError, ValueError) as error:
            raise type(error)(f"test: {error}") from None
    parts = [_client(reader, part, i) for i, part in enumerate(test)]
    return parts, np.repeat(np.arange(len(parts)), [len(x) for x, _ in parts])


def _joined(parts: Sequence[Examples]) -> Examples:
    for i, part in enumerate(parts):
        _same_form(parts[0], part, "client 0", f"client {i}")
    return Examples(torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts]))


def _same_form(one: Examples, other: Examples, first: str, second: str) -> None:
    """Raise ValueError where samples or targets differ in shape, or one is whole numbers and the other not."""
    for what, a, b in (("samples", one.x, other.x), ("targets", one.y, other.y)):
        if a.shape[1:] != b.shape[1:]:
            shapes = f"{tuple(a.shape[1:])} and {second} of shape {tuple(b.shape[1:])}"
            raise ValueError(f"{first} has {what} of shape {shapes}; crop, pad or reshape them all to one shape")
        if a.is_floating_point() != b.is_floating_point():
            raise ValueError(f"{first} has {what} of type {a.dtype} and {second} {b.dtype}; convert them to one type")


def _pictures(train: Examples, test: Examples | None, pixels: str | None) -> tuple[Examples, Examples | None]:
    """uint8 samples are pictures and are scaled; other samples stay as they are, and ``pixels`` is refused."""
    kind = _kind(pixels)
    if train.x.dtype != torch.uint8:
        if pixels is not None:
            raise ValueError(
                f"pixels = {pixels!r} applies to pictures stored as uint8, and X is {train.x.dtype}; "
                "scale X yourself and leave pixels out"
            )
        return train, test
    scaled = None if test is None else Examples(_scaled(test.x, train.x, 255.0, kind), test.y)
    return Examples(_scaled(train.x, train.x, 255.0, kind), train.y), scaled


def _kind(pixels: str | None) -> str:
    if pixels not in (None, *PIXELS):
        raise ValueError(f"pixels = {pixels!r} is not one of {', '.join(PIXELS)}")
    return pixels or "unit"


def _scaled(x: Tensor, like: Tensor, scale: float, kind: str) -> Tensor:
    """Pixel values as asked for; mean 0 and deviation 1 are those of ``like``, per channel where there are several."""
    values = x.to(torch.float32, copy=True)
    if kind == "raw":
        return values
    values /= scale
    if kind == "unit":
        return values
    known = values if like is x else like.to(torch.float32) / scale
    if x.dim() < 4 or x.shape[1] == 1:
        return (values - known.mean()) / known.std()
    mean, deviation = (part(known, dim=(0, 2, 3), keepdim=True) for part in (torch.mean, torch.std))
    return (values - mean) / deviation
