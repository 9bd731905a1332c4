"""Label-sorted shards, dealt at random: the paper's non-IID data."""

from __future__ import annotations

import numpy as np

from fedalpha.data.partitions.base import PARTITIONS, Indices, Partition


@PARTITIONS.register(
    formula="sort by label, cut into shards; one a client, each other to a random client (per_client: equally many)",
    reference="the paper's non-IID data (size=30); McMahan et al., 2017, 1602.05629 (per_client=2)",
    examples=("shards(size=30)", "shards(size=4)", "shards(per_client=2)"),
)
class shards(Partition):
    """Label-sorted contiguous shards of ``size`` samples (30 by default; the last may be shorter).

    Every client gets one shard and each of the rest goes to a random client, so sizes are
    unbalanced. With ``per_client`` instead, every client gets that many shards of equal size
    (to within one sample).

    >>> sorted(part.tolist() for part in shards(size=2).split([1, 0, 1, 0, 2], 3, np.random.default_rng(0)))
    [[0, 2], [1, 3], [4]]
    >>> sorted(part.tolist() for part in shards(per_client=1).split([1, 0, 1, 0], 2, np.random.default_rng(0)))
    [[0, 2], [1, 3]]
    """

    size: int | None = None
    per_client: int | None = None

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
