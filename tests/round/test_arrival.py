"""A hundred orders in which reports arrive, one SHA-256: for every strategy, over a whole round of the server."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any

import numpy as np
import pytest
import torch

from fedalpha.combine import Reports
from fedalpha.round import Algorithm, Evaluation, ServerState, Train, play
from fedalpha.store.tree import pack
from fedalpha.strategies import STRATEGIES, Array
from fedalpha.update import Broadcast, Report

CLIENTS, ORDERS = 7, 100
RNG = np.random.default_rng(0)
MODELS = torch.from_numpy(RNG.normal(size=(CLIENTS, 5)).astype(np.float32))
LOSSES = RNG.uniform(0.1, 2, size=(3, CLIENTS))
SIZES = RNG.integers(5, 50, CLIENTS).astype(np.float64)
SENT = Broadcast(None, {"w": torch.zeros(5), "n": torch.tensor(4)})  # type: ignore[arg-type]
EVERY = [entry.examples[0] for entry in STRATEGIES]


class People:
    """The registered clients."""

    clients = CLIENTS

    def named(self, places: Any) -> Any:
        return places

    def sizes(self, ids: Any) -> Array:
        return SIZES[ids]

    def optima(self, ids: Any) -> Array | None:
        return None


class Arriving:
    """Clients whose reports arrive in a given order."""

    def __init__(self, order: tuple[int, ...]) -> None:
        self.order = order

    def losses(self, broadcast: Broadcast, ids: Any, sample: Any = None) -> Array:
        return LOSSES[0, ids]

    def update(self, broadcast: Broadcast, job: Train) -> Reports:
        asked = set(job.ids.tolist())
        return Reports([self.report(i) for i in self.order if i in asked])

    def report(self, i: int) -> Report:
        losses = {"train": float(LOSSES[1, i]), "after": float(LOSSES[2, i])}
        model, counts = {"w": MODELS[i], "n": torch.tensor(i)}, [i, 3, 1]
        return Report(i, model, losses, steps=1 + i % 3, samples=int(SIZES[i]), labels=counts)

    def evaluate(self, broadcast: Broadcast, part: Any) -> Evaluation:
        raise AssertionError("no round of these needs the server's data")

    def close(self) -> None:
        pass


def digest(state: ServerState) -> str:
    """SHA-256 of the model and of every state that the next round starts from."""
    tree = (state.broadcast.parameters, state.weigh, state.combine, state.apply, state.select)
    text, arrays = pack(tree)
    found = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        found.update(arrays[name].tobytes())
    return found.hexdigest()


@pytest.mark.parametrize("strategy", EVERY)
def test_a_hundred_arrival_orders_one_hash(strategy: str) -> None:
    algorithm, rng = Algorithm(weigh=STRATEGIES.parse(strategy)), np.random.default_rng(1)
    start = algorithm.init(SENT, CLIENTS)
    everyone = list(itertools.permutations(range(CLIENTS)))
    orders = [everyone[i] for i in rng.choice(len(everyone), ORDERS, replace=False)]
    found = {digest(play(algorithm, start, Arriving(order), People(), seed=0).state) for order in orders}
    assert len(found) == 1
    assert found != {digest(start)}
