"""Samples dealt like cards."""

import numpy as np

from fedalpha.data.partitions import PARTITIONS, Indices, Partition


@PARTITIONS.register(formula="a random order; its j-th sample goes to client j modulo N", reference="docs/extending.md")
class dealt(Partition):
    """The samples are shuffled, then each client gets one in turn. Sizes differ by at most one."""

    def owners(self, labels: Indices, clients: int, rng: np.random.Generator) -> Indices:
        return rng.permutation(len(labels)) % clients
