"""Label skew: each label is shared out in proportions drawn from a Dirichlet distribution."""

from __future__ import annotations

import numpy as np

from fedalpha.data.partitions.base import PARTITIONS, Indices, Partition
from fedalpha.data.partitions.dealing import apportion, by_label, concentration, dirichlet_draw


@PARTITIONS.register(
    formula="q_k ~ Dirichlet(a, …, a) over clients; client i gets the share q_ki of label k",
    reference="Hsu, Qi, Brown, 2019, 1909.06335; Yurochkin et al., 2019, 1905.12022",
    examples=("dirichlet(a=0.5)", "dirichlet(a=0.01)", "dirichlet(a=100.0)"),
)
class dirichlet(Partition):
    """Label skew: the samples of each label are shared out in proportions drawn from Dirichlet(a).

    A small ``a`` gives each label to few clients, a large one is almost IID. A client that
    the draw leaves without samples gets one from the largest client.

    >>> [len(part) for part in dirichlet(a=1e9).split([0, 1] * 15, 3, np.random.default_rng(0))]
    [10, 10, 10]
    >>> sorted(len(part) for part in dirichlet(a=1e-9).split([0] * 15, 3, np.random.default_rng(0)))
    [1, 1, 13]
    """

    a: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "a", concentration("dirichlet", self.a))

    def owners(self, labels: Indices, clients: int, rng: np.random.Generator) -> Indices:
        owners = np.empty(len(labels), dtype=np.int64)
        for samples in by_label(labels, rng):
            share = apportion(dirichlet_draw(self.a, clients, rng), len(samples))
            owners[samples] = np.repeat(np.arange(clients), share)
        sizes = np.bincount(owners, minlength=clients)
        for empty in np.flatnonzero(sizes == 0):
            richest = int(np.argmax(sizes))
            owners[rng.choice(np.flatnonzero(owners == richest))] = empty
            sizes[richest] -= 1
            sizes[empty] = 1
        return owners
