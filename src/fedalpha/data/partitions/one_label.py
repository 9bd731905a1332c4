"""The hardest label skew: one label per client."""

from __future__ import annotations

import numpy as np

from fedalpha.data.partitions.base import PARTITIONS, Indices, Partition
from fedalpha.data.partitions.dealing import by_label


@PARTITIONS.register(
    formula="client i holds a part of one label; clients per label ∝ the label's samples",
    reference="the extreme of label skew, as in Zhao et al., 2018, 1806.00582",
)
class one_label(Partition):
    """Each client holds one label; there must be at least as many clients as labels.

    Labels with more samples are shared by more clients; the samples of a label are shared evenly.

    >>> labels = np.array([0, 1, 0, 1, 0, 0])
    >>> sorted(labels[part].tolist() for part in one_label().split(labels, 3, np.random.default_rng(0)))
    [[0, 0], [0, 0], [1, 1]]
    """

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
        for team, samples in zip(teams, by_label(labels, rng), strict=True):
            owners[samples] = np.resize(team, len(samples))
        return owners
