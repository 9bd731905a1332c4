"""Quantity skew: sizes differ, label distributions do not."""

from __future__ import annotations

import numpy as np

from fedalpha.data.partitions.base import PARTITIONS, Indices, Partition
from fedalpha.data.partitions.dealing import apportion, concentration, dirichlet_draw, stratified


@PARTITIONS.register(
    formula="n_i ≈ 1 + q_i·(n − N), q ~ Dirichlet(a, …, a); labels as in iid",
    reference="Li, Diao, Chen, He, 2022, 2102.02079",
    examples=("quantity(a=1.0)", "quantity(a=0.1)"),
)
class quantity(Partition):
    """Quantity skew: sizes in proportions drawn from Dirichlet(a), the same label distribution for each.

    >>> sorted(len(part) for part in quantity(a=1e-9).split([0, 1] * 10, 3, np.random.default_rng(0)))
    [1, 1, 18]
    """

    a: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "a", concentration("quantity", self.a))

    def owners(self, labels: Indices, clients: int, rng: np.random.Generator) -> Indices:
        spare = apportion(dirichlet_draw(self.a, clients, rng), len(labels) - clients)
        return stratified(labels, 1 + spare, rng)
