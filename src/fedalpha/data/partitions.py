"""Partitions: who holds what.

A partition gives every sample of a labelled data set to exactly one client, and every client at
least one sample:

- `iid`: the same label distribution everywhere, sizes as you choose.
- `shards`: label-sorted shards dealt at random; the paper's non-IID data.
- `dirichlet`: label skew, from one label a client (a → 0) to almost IID (a → ∞).
- `quantity`: sizes skewed, labels not.
- `one_label`: the hardest label skew, one label a client.

A new partition is a frozen dataclass with one method, ``owners``, registered with
``@PARTITIONS.register``; the property tests then run over it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedalpha.text import Registry, Spelled

Indices = NDArray[np.int64]


class Partition(Spelled, ABC):
    """Subclasses are frozen dataclasses that say who owns each sample; equal text means equal."""

    def split(self, labels: ArrayLike, clients: int, rng: np.random.Generator) -> list[Indices]:
        """The sorted sample indices of each client: together every sample exactly once, nobody empty."""
        y = np.asarray(labels)
        if y.ndim != 1:
            raise ValueError(f"labels must be one-dimensional, got shape {y.shape}; pass one label a sample")
        if clients < 1:
            raise ValueError(f"clients is {clients}: give a whole number ≥ 1")
        if len(y) < clients:
            raise ValueError(
                f"{len(y)} samples cannot be split over {clients} clients, one each at least; use fewer clients"
            )
        codes = np.unique(y, return_inverse=True)[1].astype(np.int64)
        owners = self.owners(codes, clients, rng)
        sizes = np.bincount(owners, minlength=clients)
        return np.split(np.argsort(owners, kind="stable"), np.cumsum(sizes)[:-1])

    @abstractmethod
    def owners(self, labels: Indices, clients: int, rng: np.random.Generator) -> Indices:
        """The client (0 … clients − 1, each at least once) of every sample; labels count from 0."""


PARTITIONS: Registry[Partition] = Registry("partition", Partition)  # type: ignore[type-abstract]
"""Every partition that can be written as text."""


@PARTITIONS.register(
    "iid",
    formula="n_ik ≈ n_i·n_k/n: every client has the label distribution of the whole",
    reference="the paper's IID data: stratified, sizes chosen",
    examples=("iid", "iid(sizes=[1, 2, 3])"),
)
@dataclass(frozen=True, eq=False, repr=False)
class Iid(Partition):
    """The same label distribution for each client; sizes equal, or in the proportions ``sizes``.

    Equal sizes differ by at most one, and each client's count of each label is within one of
    proportional. ``sizes`` are shares, one a client, so counts with the right sum are met exactly.

    >>> labels = np.array([0, 0, 1, 1])
    >>> [labels[part].tolist() for part in Iid().split(labels, 2, np.random.default_rng(0))]
    [[0, 1], [0, 1]]
    >>> [len(part) for part in Iid(sizes=[3, 1]).split([0] * 8, 2, np.random.default_rng(0))]
    [6, 2]
    """

    sizes: Sequence[float] | None = None

    text_name: ClassVar[str] = "iid"

    def __post_init__(self) -> None:
        if self.sizes is None:
            return
        sizes = np.asarray(self.sizes)
        if sizes.ndim != 1 or len(sizes) == 0 or sizes.dtype.kind not in "iuf":
            raise ValueError(f"iid: sizes = {self.sizes!r}; give a list with one number a client, like sizes=[3, 1]")
        if not (np.isfinite(sizes).all() and (sizes > 0).all()):
            raise ValueError(f"iid: sizes = {self.sizes!r}; every client needs a finite size above 0")
        object.__setattr__(self, "sizes", tuple(sizes.tolist()))

    def owners(self, labels: Indices, clients: int, rng: np.random.Generator) -> Indices:
        if self.sizes is not None and len(self.sizes) != clients:
            raise ValueError(f"iid: sizes has {len(self.sizes)} values for {clients} clients; give one a client")
        sizes = _apportion(np.ones(clients) if self.sizes is None else np.asarray(self.sizes), len(labels))
        if not sizes.all():
            raise ValueError(
                f"iid: with these sizes client {int(np.argmin(sizes))} gets none of the {len(labels)} samples; "
                "give it a larger share"
            )
        return _stratified(labels, sizes, rng)


@PARTITIONS.register(
    "shards",
    formula="sort by label, cut into shards; one a client, each other to a random client (per_client: equally many)",
    reference="the paper's non-IID data (size=30); McMahan et al., 2017, 1602.05629 (per_client=2)",
    examples=("shards(size=30)", "shards(size=4)", "shards(per_client=2)"),
)
@dataclass(frozen=True, eq=False, repr=False)
class Shards(Partition):
    """Label-sorted contiguous shards of ``size`` samples (30 by default; the last may be shorter).

    Every client gets one shard and each of the rest goes to a random client, so sizes are
    unbalanced. With ``per_client`` instead, every client gets that many shards of equal size
    (to within one sample).

    >>> sorted(part.tolist() for part in Shards(size=2).split([1, 0, 1, 0, 2], 3, np.random.default_rng(0)))
    [[0, 2], [1, 3], [4]]
    >>> sorted(part.tolist() for part in Shards(per_client=1).split([1, 0, 1, 0], 2, np.random.default_rng(0)))
    [[0, 2], [1, 3]]
    """

    size: int | None = None
    per_client: int | None = None

    text_name: ClassVar[str] = "shards"

    def __post_init__(self) -> None:
        if self.size is not None and self.per_client is not None:
            raise ValueError("shards: size and per_client exclude each other; give one of them")
        if self.size is None and self.per_client is None:
            object.__setattr__(self, "size", 30)
        for name, value in (("size", self.size), ("per_client", self.per_client)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(f"shards: {name} = {value!r}; give a whole number ≥ 1")

    def owners(self, labels: Indices, clients: int, rng: np.random.Generator) -> Indices:
        n = len(labels)
        if self.size is not None:
            shard = np.arange(n) // self.size
            shards = int(shard[-1]) + 1
            if shards < clients:
                raise ValueError(
                    f"{self}: {n} samples make {shards} shards, fewer than {clients} clients; "
                    f"use shards(size={(n - 1) // (clients - 1) if clients > 1 else n}) or smaller, or fewer clients"
                )
            shard_owner = rng.integers(clients, size=shards)
            shard_owner[rng.permutation(shards)[:clients]] = np.arange(clients)
        else:
            assert self.per_client is not None
            shards = clients * self.per_client
            if shards > n:
                raise ValueError(
                    f"{self}: {clients} clients need {shards} shards and there are {n} samples; "
                    f"use shards(per_client={n // clients}) or less, or fewer clients"
                )
            shard = np.arange(n) * shards // n
            shard_owner = rng.permutation(shards) // self.per_client
        owners = np.empty(n, dtype=np.int64)
        owners[np.argsort(labels, kind="stable")] = shard_owner[shard]
        return owners


@PARTITIONS.register(
    "dirichlet",
    formula="q_k ~ Dirichlet(a, …, a) over clients; client i gets the share q_ki of label k",
    reference="Hsu, Qi, Brown, 2019, 1909.06335; Yurochkin et al., 2019, 1905.12022",
    examples=("dirichlet(a=0.5)", "dirichlet(a=0.01)", "dirichlet(a=100.0)"),
)
@dataclass(frozen=True, eq=False, repr=False)
class Dirichlet(Partition):
    """Label skew: the samples of each label are shared out in proportions drawn from Dirichlet(a).

    A small ``a`` gives each label to few clients, a large one is almost IID. A client that the
    draw leaves empty gets one sample of the client that then has most.

    >>> [len(part) for part in Dirichlet(a=1e9).split([0, 1] * 15, 3, np.random.default_rng(0))]
    [10, 10, 10]
    >>> sorted(len(part) for part in Dirichlet(a=1e-9).split([0] * 15, 3, np.random.default_rng(0)))
    [1, 1, 13]
    """

    a: float = 0.5

    text_name: ClassVar[str] = "dirichlet"

    def __post_init__(self) -> None:
        object.__setattr__(self, "a", _concentration("dirichlet", self.a))

    def owners(self, labels: Indices, clients: int, rng: np.random.Generator) -> Indices:
        owners = np.empty(len(labels), dtype=np.int64)
        for samples in _by_label(labels, rng):
            share = _apportion(_dirichlet(self.a, clients, rng), len(samples))
            owners[samples] = np.repeat(np.arange(clients), share)
        sizes = np.bincount(owners, minlength=clients)
        for empty in np.flatnonzero(sizes == 0):
            richest = int(np.argmax(sizes))
            owners[rng.choice(np.flatnonzero(owners == richest))] = empty
            sizes[richest] -= 1
            sizes[empty] = 1
        return owners


@PARTITIONS.register(
    "quantity",
    formula="n_i ≈ 1 + q_i·(n − N), q ~ Dirichlet(a, …, a); labels as in iid",
    reference="Li, Diao, Chen, He, 2022, 2102.02079",
    examples=("quantity(a=1.0)", "quantity(a=0.1)"),
)
@dataclass(frozen=True, eq=False, repr=False)
class Quantity(Partition):
    """Quantity skew: sizes in proportions drawn from Dirichlet(a), the same label distribution for each.

    >>> sorted(len(part) for part in Quantity(a=1e-9).split([0, 1] * 10, 3, np.random.default_rng(0)))
    [1, 1, 18]
    """

    a: float = 1.0

    text_name: ClassVar[str] = "quantity"

    def __post_init__(self) -> None:
        object.__setattr__(self, "a", _concentration("quantity", self.a))

    def owners(self, labels: Indices, clients: int, rng: np.random.Generator) -> Indices:
        spare = _apportion(_dirichlet(self.a, clients, rng), len(labels) - clients)
        return _stratified(labels, 1 + spare, rng)


@PARTITIONS.register(
    "one_label",
    formula="client i holds a part of one label; clients per label ∝ the label's samples",
    reference="the extreme of label skew, as in Zhao et al., 2018, 1806.00582",
)
@dataclass(frozen=True, eq=False, repr=False)
class OneLabel(Partition):
    """Each client holds one label; there must be at least as many clients as labels.

    Labels with more samples are shared by more clients; the samples of a label are shared evenly.

    >>> labels = np.array([0, 1, 0, 1, 0, 0])
    >>> sorted(labels[part].tolist() for part in OneLabel().split(labels, 3, np.random.default_rng(0)))
    [[0, 0], [0, 0], [1, 1]]
    """

    text_name: ClassVar[str] = "one_label"

    def owners(self, labels: Indices, clients: int, rng: np.random.Generator) -> Indices:
        counts = np.bincount(labels)
        if clients < len(counts):
            raise ValueError(
                f"one_label: {clients} clients cannot hold {len(counts)} labels, one each; use {len(counts)} or more"
            )
        holders = np.ones(len(counts), dtype=np.int64)
        for _ in range(clients - len(counts)):
            holders[np.argmax(counts / holders)] += 1
        owners = np.empty(len(labels), dtype=np.int64)
        teams = np.split(rng.permutation(clients), np.cumsum(holders)[:-1])
        for team, samples in zip(teams, _by_label(labels, rng), strict=True):
            owners[samples] = np.resize(team, len(samples))
        return owners


def _by_label(labels: Indices, rng: np.random.Generator) -> list[Indices]:
    """The samples of each label, shuffled."""
    return [rng.permutation(np.flatnonzero(labels == k)) for k in range(int(labels.max()) + 1)]


def _apportion(shares: NDArray[np.float64], total: int) -> Indices:
    """``total`` as whole numbers in the proportions of ``shares``: each rounded up or down (largest remainders up)."""
    shares = shares / shares.max()
    exact = shares * total / math.fsum(shares.tolist())
    # A share that is whole but for the last bits of a float is whole.
    whole = np.where(np.abs(exact - np.rint(exact)) < 1e-9, np.rint(exact), np.floor(exact)).astype(np.int64)
    up = np.argsort(-(exact - whole), kind="stable")[: total - int(whole.sum())]
    whole[up] += 1
    return whole


def _stratified(labels: Indices, sizes: Indices, rng: np.random.Generator) -> Indices:
    """Owners such that client i has sizes[i] samples, and of each label its proportional count or one off.

    The proportional table is rounded down; then label by label, what is left goes one a client
    to those that lack most (Gale and Ryser's construction, which always comes out even).
    """
    counts = np.bincount(labels)
    table = sizes[:, None] * counts[None, :] // len(labels)
    lacking = sizes - table.sum(axis=1)
    for k, left in enumerate(counts - table.sum(axis=0)):
        takers = np.lexsort((rng.random(len(sizes)), -lacking))[:left]
        table[takers, k] += 1
        lacking[takers] -= 1
    owners = np.empty(len(labels), dtype=np.int64)
    for k, samples in enumerate(_by_label(labels, rng)):
        owners[samples] = np.repeat(np.arange(len(sizes)), table[:, k])
    return owners


def _dirichlet(a: float, clients: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """One draw of Dirichlet(a, …, a) up to its scale, in logarithms so that a tiny ``a`` does not underflow to 0/0.

    Gamma(a) has the law of Gamma(a + 1)·U^(1/a).
    """
    log_gamma = np.log(rng.standard_gamma(a + 1, clients)) + np.log1p(-rng.random(clients)) / a
    with np.errstate(under="ignore"):
        draw: NDArray[np.float64] = np.exp(log_gamma - log_gamma.max())
    return draw


def _concentration(owner: str, a: object) -> float:
    if isinstance(a, bool) or not isinstance(a, int | float) or not 1e-9 <= a <= 1e9:
        raise ValueError(f"{owner}: a = {a!r}; give a concentration between 1e-9 and 1e9 (0.1 is skewed, 100 is even)")
    return float(a)
