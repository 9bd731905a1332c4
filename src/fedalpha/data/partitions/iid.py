"""The same label distribution for every client."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedalpha.data.partitions.base import PARTITIONS, Indices, Partition
from fedalpha.data.partitions.dealing import apportion, stratified


@PARTITIONS.register(
    formula="n_ik ≈ n_i·n_k/n: every client has the label distribution of the whole",
    reference="the paper's IID data: stratified, sizes chosen",
    examples=("iid", "iid(sizes=[1, 2, 3])"),
)
class iid(Partition):
    """The same label distribution for each client; sizes equal, or in the proportions ``sizes``.

    Equal sizes differ by at most one, and each client's count of each label is within one of
    proportional. ``sizes`` are shares, one per client; counts with the right sum are met exactly.

    >>> labels = np.array([0, 0, 1, 1])
    >>> [labels[part].tolist() for part in iid().split(labels, 2, np.random.default_rng(0))]
    [[0, 1], [0, 1]]
    >>> [len(part) for part in iid(sizes=[3, 1]).split([0] * 8, 2, np.random.default_rng(0))]
    [6, 2]
    """

    sizes: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if self.sizes is None:
            return
        sizes = np.asarray(self.sizes)
        if sizes.ndim != 1 or len(sizes) == 0 or sizes.dtype.kind not in "iuf":
            raise ValueError(f"iid: sizes = {self.sizes!r}; give a list with one number per client, like sizes=[3, 1]")
        if not (np.isfinite(sizes).all() and (sizes > 0).all()):
            raise ValueError(f"iid: sizes = {self.sizes!r}; every client needs a finite size above 0")
        object.__setattr__(self, "sizes", tuple(sizes.tolist()))

    def owners(self, labels: Indices, clients: int, rng: np.random.Generator) -> Indices:
        if self.sizes is not None and len(self.sizes) != clients:
            raise ValueError(f"iid: sizes has {len(self.sizes)} values for {clients} clients; give one per client")
        sizes = apportion(np.ones(clients) if self.sizes is None else np.asarray(self.sizes), len(labels))
        if not sizes.all():
            raise ValueError(
                f"iid: with these sizes client {int(np.argmin(sizes))} gets none of the {len(labels)} samples; "
                "give it a larger share"
            )
        return stratified(labels, sizes, rng)
