"""Servers under the names of the papers that describe them."""

from __future__ import annotations

from fedalpha.clock.servers.base import SERVERS
from fedalpha.clock.servers.buffered import buffered


@SERVERS.register(
    formula="buffered(K, concurrency): FedBuff's server; weigh by the strategy of the same name",
    reference="Nguyen et al., 2022, 2106.06639",
    examples=("fedbuff(K=10, concurrency=100)",),
)
def fedbuff(K: int = 10, concurrency: int = 100) -> buffered:
    """FedBuff: a buffer of K updates (10 in the paper), with the strategy ``FedBuff``."""
    return buffered(K=K, concurrency=concurrency)


@SERVERS.register(
    formula="buffered(K=1, concurrency, rebase=false): FedAsync's server; weigh by the strategy of the same name",
    reference="Xie et al., 2019, 1903.03934",
    examples=("fedasync(concurrency=10)",),
)
def fedasync(concurrency: int = 10) -> buffered:
    """FedAsync: every update makes a version, w ← (1 − α_τ)·w + α_τ·w_i, with the strategy ``FedAsync``."""
    return buffered(K=1, concurrency=concurrency, rebase=False)
