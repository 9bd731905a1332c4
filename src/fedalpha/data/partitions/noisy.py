"""Label noise: some clients hold wrong labels."""

from __future__ import annotations

import dataclasses

import numpy as np

from fedalpha.data.partitions.base import PARTITIONS
from fedalpha.data.partitions.wrapper import Holding, Wrapper, chosen
from fedalpha.rng import generator


@PARTITIONS.register(
    formula="in ``clients`` of the clients, ``share`` of the labels become another label, each equally likely",
    reference="symmetric noise, as in Fang, Ye, 2022 (Robust federated learning with noisy clients)",
    examples=("noisy(iid, share=0.4)", "noisy(dirichlet(a=0.5), share=0.4, clients=0.5)"),
)
class noisy(Wrapper):
    """Wrong labels: ``share`` of the training labels of ``clients`` (a number of clients, or a share of them).

    Exactly round(share·n_i) labels of such a client are wrong. Test parts keep their labels.
    """

    share: float = dataclasses.field(default=0.4, metadata={"always": True})
    clients: int | float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.share, bool) or not isinstance(self.share, int | float) or not 0 <= self.share <= 1:
            raise ValueError(f"noisy: share = {self.share!r}; give a share of the labels in [0, 1]")
        if isinstance(self.clients, bool) or not isinstance(self.clients, int | float) or self.clients < 0:
            raise ValueError(f"noisy: clients = {self.clients!r}; give a number of clients, or a share in [0, 1]")
        if isinstance(self.clients, float) and self.clients > 1:
            raise ValueError(f"noisy: clients = {self.clients!r}; a share is at most 1.0 (write 3 for three clients)")

    def change(self, holding: Holding) -> Holding:
        y = holding.y
        if y.ndim != 1 or y.dtype.kind not in "iu":
            raise ValueError("noisy needs one label per sample; these targets are not labels")
        if holding.classes < 2:
            raise ValueError("noisy needs at least two classes")
        if holding.test or not chosen(self.clients, holding, "noisy"):
            return holding
        rng = generator(holding.seed, "noisy labels", client=holding.client)
        wrong = rng.permutation(len(y))[: round(self.share * len(y))]
        found = y.copy()
        found[wrong] = (y[wrong] + rng.integers(1, holding.classes, len(wrong))) % holding.classes
        return dataclasses.replace(holding, y=np.ascontiguousarray(found))
