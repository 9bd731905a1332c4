"""`federation`: the one call that makes clients from data of any kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedalpha.data.federations import Examples, Pair, Pooled
from fedalpha.data.inputs import Input, from_clients, from_natural, from_partitioned, from_samples
from fedalpha.data.partitions import PARTITIONS, Indices, Partition
from fedalpha.data.sets import DATASETS, DataSet, Natural, Partitioned
from fedalpha.rng import generator
from fedalpha.task import Task

if TYPE_CHECKING:
    from torch.utils.data import Dataset

TEST_SHARE = 0.2
CLIENTS = 10


def federation(
    data: str | DataSet | Dataset[Any] | Pair | Sequence[Pair],
    *,
    partition: str | Partition = "iid",
    clients: int | None = None,
    seed: int = 0,
    validation: float = 0.0,
    test: Dataset[Any] | Pair | Sequence[Pair] | None = None,
    pixels: str = "unit",
    optima: ArrayLike | None = None,
    task: Task | None = None,
) -> Pooled:
    """A federation from a named data set, a torch ``Dataset``, tensors, or per-client data.

    ``data``: a name from ``fedalpha data list`` (``digits``, ``synthetic(a=1, b=1)``), a map-style ``Dataset``
    of (x, y), a pair ``(X, y)`` (a tuple), or a list with one ``(X, y)`` per client, which needs no partition. ``test``
    is data of the same kinds; a list holds one part per client. Without it a stratified fifth is set aside.
    ``clients``: 10 unless the data are given client by client.
    ``validation`` is the share of the training data kept at the server for accuracy switches.
    ``pixels``: unit (0–1), raw (as stored) or standard (mean 0, deviation 1). ``task``: what clients minimise and
    what accuracy means (`Task`; cross-entropy by default).

    >>> federation("digits", partition="shards(size=30)", clients=20, seed=0).clients
    20
    """
    if not 0 <= validation < 1:
        raise ValueError(f"validation = {validation}; give a share of the training data in [0, 1)")
    rule = PARTITIONS.parse(partition)
    source = DATASETS.parse(data) if isinstance(data, str) else data
    count = CLIENTS if clients is None else clients
    about: dict[str, Any] = {"clients": count, "partition": str(rule), "seed": seed, "validation": validation}
    match source:
        case Partitioned():
            found = from_partitioned(source, pixels)
            about = {"dataset": str(data), "pixels": pixels, **about}
        case Natural():
            found = from_natural(source, count, seed, test)
            about |= {"dataset": str(data)}
        case list():
            found = from_clients(source, test, clients)
        case _:
            found = from_samples(source, test)
    if found.sizes is not None:
        about |= {"clients": len(found.sizes), "partition": "given"}
    built = _assemble(found, rule, count, seed, validation, optima, about)
    return built if task is None else built.with_task(task)


def _assemble(
    found: Input,
    rule: Partition,
    clients: int,
    seed: int,
    validation: float,
    optima: ArrayLike | None,
    description: dict[str, Any],
) -> Pooled:
    """Set the test and validation parts aside, partition samples that have no client yet, and sort by client."""
    train, groups = found.train, found.groups()
    test, test_owner, validated = found.test, found.test_owner, None
    if test is None:
        # The same generator for every client, so that a client's test part does not depend on the clients before it.
        groups, away = _set_aside(train.y, groups, TEST_SHARE, (generator(seed, "test") for _ in groups))
        test = _take(train, away)
        test_owner = None if found.sizes is None else np.repeat(np.arange(len(away)), [len(part) for part in away])
    if validation:
        draws = (generator(seed, "validation", client=i) for i in range(len(groups)))
        groups, away = _set_aside(train.y, groups, validation, draws)
        validated = _take(train, away)
    if found.sizes is None:
        groups = _split(train.y, groups[0], rule, clients, seed)
    if any(len(group) == 0 for group in groups):
        raise ValueError("a client has no training samples left; give every client more data or lower validation")
    return Pooled(
        _take(train, groups),
        np.concatenate([[0], np.cumsum([len(group) for group in groups])]),
        test,
        classes=_classes(train.y, test.y),
        validation=validated,
        test_owner=test_owner,
        optima=optima,
        description=description,
    )


def _split(y: Tensor, samples: Indices, rule: Partition, clients: int, seed: int) -> list[Indices]:
    """The samples of each client under a partition."""
    # Without labels (regression) there is nothing to stratify by: all samples count as one label.
    labelled = y.dim() == 1 and not y.is_floating_point()
    labels = y[torch.from_numpy(samples)].numpy() if labelled else np.zeros(len(samples), dtype=np.int64)
    return [samples[part] for part in rule.split(labels, clients, generator(seed, "partition"))]


def _classes(train: Tensor, test: Tensor) -> int:
    """The number of labels, or of values to predict."""
    if train.is_floating_point():
        return int(np.prod(train.shape[1:]))
    return int(max(train.max(), test.max())) + 1


def _take(data: Examples, groups: Sequence[Indices]) -> Examples:
    return data[torch.from_numpy(np.concatenate(groups))]


def _set_aside(
    y: Tensor, groups: Sequence[Indices], share: float, draws: Iterable[np.random.Generator]
) -> tuple[list[Indices], list[Indices]]:
    """The samples that are kept of each group, and those that are set aside."""
    pairs = [_stratified(y, group, share, rng) for group, rng in zip(groups, draws, strict=True)]
    return [kept for kept, _ in pairs], [away for _, away in pairs]


def _stratified(y: Tensor, group: Indices, share: float, rng: np.random.Generator) -> tuple[Indices, Indices]:
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
