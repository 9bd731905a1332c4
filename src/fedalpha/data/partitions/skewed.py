"""Quantity skew × label skew: sizes differ, and so do label distributions."""

from __future__ import annotations

import numpy as np

from fedalpha.data.partitions.base import PARTITIONS, Indices, Partition
from fedalpha.data.partitions.dealing import apportion, by_label, concentration, dirichlet_draw


@PARTITIONS.register(
    formula="n_i ≈ 1 + q_i·(n − N), q ~ Dirichlet(sizes); client i draws its labels from p_i ~ Dirichlet(labels)",
    reference="sizes: Li, Diao, Chen, He, 2022, 2102.02079; labels: Hsu, Qi, Brown, 2019, 1909.06335",
    examples=("skewed(sizes=1.0, labels=0.5)", "skewed(sizes=0.1, labels=0.05)"),
)
class skewed(Partition):
    """Both skews at once: sizes as ``quantity(a=sizes)`` has them, labels in proportions from Dirichlet(``labels``).

    Clients take their samples in a random order. Where a label has run out, a client takes more of its other labels,
    so the last clients are less skewed.

    >>> sorted(len(part) for part in skewed(sizes=1e-9, labels=1.0).split([0, 1] * 10, 3, np.random.default_rng(0)))
    [1, 1, 18]
    """

    sizes: float = 1.0
    labels: float = 0.5

    def __post_init__(self) -> None:
        for name in ("sizes", "labels"):
            value = getattr(self, name)
            try:
                object.__setattr__(self, name, concentration("skewed", value))
            except ValueError as error:
                raise ValueError(str(error).replace("a =", f"{name} =")) from None

    def owners(self, labels: Indices, clients: int, rng: np.random.Generator) -> Indices:
        sizes = 1 + apportion(dirichlet_draw(self.sizes, clients, rng), len(labels) - clients)
        piles = by_label(labels, rng)
        left = np.array([len(pile) for pile in piles])
        owners = np.empty(len(labels), dtype=np.int64)
        for client in rng.permutation(clients):
            taken = _taken(left, int(sizes[client]), dirichlet_draw(self.labels, len(piles), rng))
            for label in np.flatnonzero(taken):
                end = left[label]
                owners[piles[label][end - taken[label] : end]] = client
            left = left - taken
        return owners


def _taken(left: Indices, size: int, shares: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Indices:
    """How many samples of each label a client takes: in the proportions ``shares``, as far as there are some."""
    taken = np.zeros(len(left), dtype=np.int64)
    while (need := size - int(taken.sum())) > 0:
        open_ = np.flatnonzero(left > taken)
        weights = shares[open_]
        if not weights.max() > 0:  # all labels that the client likes have run out
            weights = (left - taken)[open_].astype(np.float64)
        taken[open_] += np.minimum(apportion(weights, need), (left - taken)[open_])
    return taken
