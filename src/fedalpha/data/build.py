"""`federation`: the one call that makes clients from data of any kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedalpha.data.federations import Examples, Pair, Pooled
from fedalpha.data.inputs import Input, from_clients, from_natural, from_partitioned, from_samples, index_lists
from fedalpha.data.partitions import PARTITIONS, Indices, Partition
from fedalpha.data.partitions.wrapper import Holding, Wrapper
from fedalpha.data.parts import PARTS, Part
from fedalpha.data.reading import Reader
from fedalpha.data.sets import DATASETS, DataSet, Natural, Partitioned
from fedalpha.data.transforms import Change, Transform, as_transform
from fedalpha.rng import generator
from fedalpha.task import Task
from fedalpha.task import task as named_task
from fedalpha.text import whole

if TYPE_CHECKING:
    from torch.utils.data import Dataset

TEST_SHARE = 0.2
CLIENTS = 10


def federation(
    data: str | DataSet | Dataset[Any] | Pair | Sequence[Pair],
    *,
    partition: str | Partition | Sequence[Sequence[int]] | Mapping[Any, Sequence[int]] = "iid",
    clients: int | None = None,
    seed: int = 0,
    validation: float = 0.0,
    test: Dataset[Any] | Pair | Sequence[Any] | None = None,
    pixels: str | None = None,
    fields: tuple[str, str] | None = None,
    classes: int | None = None,
    transform: str | Change | None = None,
    optima: ArrayLike | None = None,
    task: str | Task | None = None,
    part: str | Part | None = None,
) -> Pooled:
    """A federation from a named data set, a torch ``Dataset``, tensors, or per-client data.

    ``data``: a name from ``fedalpha data list`` (``digits``, ``synthetic(a=1, b=1)``), a map-style ``Dataset``, a pair
    ``(X, y)`` (a tuple), or a list with one of these per client, which needs no partition. Rows of a ``Dataset`` are
    (x, y) or mappings; ``fields`` names the fields of x and y. Labels are 0, 1, 2 … or words; ``classes`` is their
    number if not all occur. ``test`` is data of the same kinds; a list holds one part per client. Without it a
    stratified fifth is set aside.

    ``partition``: a rule, or the sample indices of each client. ``clients``: 10 unless the data come client by client.
    ``validation`` is the share of the training data kept at the server for accuracy switches.
    ``pixels``, for pictures: unit (0–1, the default), raw (as stored) or standard (mean 0, deviation 1).
    ``transform`` changes the samples that clients train on, at random (`fedalpha.data.transforms`): a text, or a
    function of a batch and a NumPy generator. ``task``: what clients minimise and what accuracy means (`Task`,
    or "mse" …; cross-entropy by default). ``part``: "tuning(share=0.5)" or "reported(share=0.5)", one of two parts that
    share no client and no sample; ``clients`` counts the clients of both.

    >>> federation("digits", partition="shards(size=30)", clients=20, seed=0).clients
    20
    """
    if not isinstance(validation, int | float) or not 0 <= validation < 1:
        raise ValueError(f"validation = {validation!r}; give a share of the training data in [0, 1)")
    seed = whole("seed", seed)
    clients = None if clients is None else whole("clients", clients, least=1)
    lists = index_lists(partition)
    rule = PARTITIONS.parse("iid" if lists is not None else partition)  # type: ignore[arg-type]
    source = DATASETS.parse(data) if isinstance(data, str) else data
    known = source.population if isinstance(source, Natural) and clients is None else None
    count = known or (CLIENTS if clients is None else clients)
    about: dict[str, Any] = {"clients": count, "partition": str(rule), "seed": seed, "validation": validation}
    found = _read(source, count, seed, clients, test, pixels, Reader(fields))
    if isinstance(source, DataSet):
        about |= {"dataset": str(data)}
    if isinstance(source, Partitioned):
        about = {"dataset": str(data), "pixels": pixels or "unit", **about}
    if lists is not None:
        if found.sizes is not None:
            raise ValueError("the data come client by client, so a partition cannot split them; leave partition out")
        if clients is not None and clients != len(lists):
            raise ValueError(f"clients = {clients}, but the partition lists {len(lists)} clients; leave clients out")
        found = found.given_to(lists)
    labels = _classes(found, classes)
    if part is not None:
        labels = labels or _outputs(found.train.y, (found.test or found.train).y)  # a part may lack the last label
        chosen = PARTS.parse(part)
        found, count = chosen.of(found), chosen.count(count)
        about |= {"clients": count, "part": str(chosen)}
    if found.sizes is not None:
        about |= {"clients": len(found.sizes), "partition": str(rule) if isinstance(rule, Wrapper) else "given"}
    if found.words and task == "mse":
        raise ValueError("the targets are words, and task='mse' needs numbers; leave task out if they are labels")
    changed = as_transform(transform)
    if changed is not None:
        about |= {"transform": _called(changed)}
    built = _assemble(found, rule, count, seed, validation, optima, about, labels)
    built.transform = changed
    objects = any(one is not None for one in (test, fields, classes, optima, lists))
    if isinstance(source, DataSet) and not objects and isinstance(changed, Transform | None):
        named = {"dataset": str(data), "partition": str(rule), "clients": count, "seed": seed}
        more = {} if changed is None else {"transform": str(changed)}
        built.settings = {**named, "validation": validation, "pixels": pixels or "unit", **more}
    return built if task is None else built.with_task(named_task(task) if isinstance(task, str) else task)


def _read(
    source: Any, count: int, seed: int, clients: int | None, test: Any, pixels: str | None, reader: Reader
) -> Input:
    match source:
        case Partitioned():
            return from_partitioned(source, pixels, test, reader)
        case Natural():
            return from_natural(source, count, seed, test, reader, pixels)
        case list():
            return from_clients(source, test, reader, pixels, clients)
        case _:
            return from_samples(source, test, reader, pixels)


def _called(function: Any) -> str:
    """The text of a transform, or the name of the user's function."""
    if isinstance(function, Transform):
        return str(function)
    return getattr(function, "__qualname__", type(function).__qualname__)


def _assemble(
    found: Input,
    rule: Partition,
    clients: int,
    seed: int,
    validation: float,
    optima: ArrayLike | None,
    description: dict[str, Any],
    classes: int | None,
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
    built = Pooled(
        _take(train, groups),
        np.concatenate([[0], np.cumsum([len(group) for group in groups])]),
        test,
        classes=_outputs(train.y, test.y) if classes is None else classes,
        validation=validated,
        test_owner=test_owner,
        optima=optima,
        description=description,
    )
    built.names, built.words = found.names, found.words
    if isinstance(rule, Wrapper):
        _alter(built, rule, seed)
    return built


def _alter(built: Pooled, rule: Wrapper, seed: int) -> None:
    """Change what each client holds, and its own test part, as a partition asks for."""

    def changed(data: Examples, client: int, test: bool) -> Examples:
        about = (client, built.clients, built.classes, seed, test)
        found = rule.altered(Holding(data.x.numpy(), data.y.numpy(), *about))
        return Examples(torch.from_numpy(found.x), torch.from_numpy(found.y))

    parts = [changed(built.client(i), i, False) for i in range(built.clients)]
    built.data = Examples(torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts]))
    if built.test_owner is not None:
        x, y = built.test.x.clone(), built.test.y.clone()
        for i in np.unique(built.test_owner).tolist():
            mine = torch.from_numpy(np.flatnonzero(built.test_owner == i))
            part = changed(built.test[mine], i, True)
            x[mine], y[mine] = part.x, part.y
        built.test = Examples(x, y)


def _split(y: Tensor, samples: Indices, rule: Partition, clients: int, seed: int) -> list[Indices]:
    """The samples of each client under a partition."""
    # Without labels (regression) there is nothing to stratify by: all samples count as one label.
    labelled = y.dim() == 1 and not y.is_floating_point()
    labels = y[torch.from_numpy(samples)].numpy() if labelled else np.zeros(len(samples), dtype=np.int64)
    return [samples[part] for part in rule.split(labels, clients, generator(seed, "partition"))]


def _outputs(train: Tensor, test: Tensor) -> int:
    """The number of labels, or of values to predict."""
    if train.is_floating_point():
        return int(np.prod(train.shape[1:]))
    return int(max(train.max(), test.max())) + 1


def _classes(found: Input, given: int | None) -> int | None:
    """The number of classes if it is known: given by the user, or by the data set. Labels with gaps are refused."""
    if found.train.y.is_floating_point():
        return None
    parts = [found.train.y] if found.test is None else [found.train.y, found.test.y]
    labels = torch.unique(torch.cat([part.reshape(-1) for part in parts]))
    most = int(labels.max()) + 1
    known = given if given is not None else found.classes
    if known is not None:
        if most > known:
            raise ValueError(f"there is a label {most - 1}, but classes = {known}; labels are 0 … classes − 1")
        return known
    if len(labels) * 2 < most:
        few = ", ".join(str(int(label)) for label in labels[:3])
        raise ValueError(
            f"the labels go up to {most - 1}, but only {len(labels)} of them occur ({few} …); renumber them 0, 1, 2 …, "
            f"or pass classes={most} if there are that many"
        )
    return None


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
