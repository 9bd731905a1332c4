"""The buffered server, which combines updates as they arrive."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from fedalpha.clock.servers.base import SERVERS, Server
from fedalpha.text import whole


@SERVERS.register(
    formula="``concurrency`` clients train at any time; every K updates make the next version of the model",
    reference="Nguyen et al., 2022, 2106.06639 (FedBuff); K = 1: Xie et al., 2019, 1903.03934 (FedAsync)",
    examples=("buffered(K=10, concurrency=30)", "buffered(K=1, concurrency=4, rebase=false)"),
)
class buffered(Server):
    """A buffered asynchronous server: the round of the history is the version of the model.

    As soon as a client delivers, the server sends the current version to another one. An update that was made from
    version t − τ has the staleness τ. It is rebased, w_t + (w_i − w_{t−τ}); with ``rebase=false`` the stale model w_i
    itself is averaged, as FedAsync does. With K = concurrency = cohort and equal speeds, a buffered server does the
    same as the synchronous server.
    """

    waits: ClassVar[bool] = False

    K: int = field(default=10, metadata={"always": True})
    concurrency: int = field(default=10, metadata={"always": True})
    rebase: bool = True

    def __post_init__(self) -> None:
        whole(f"{self.text_name}: K", self.K, least=1)
        whole(f"{self.text_name}: concurrency", self.concurrency, least=1)
        if not isinstance(self.rebase, bool):
            raise ValueError(f"{self.text_name}: rebase = {self.rebase!r}; give true or false")

    def size(self, version: int) -> int:
        return self.K

    def places(self, version: int) -> int:
        return self.concurrency

    @property
    def rebases(self) -> bool:
        return self.rebase
