"""Seconds a round against a plain loop of torch: the same clients, batches and steps, in turns, on one core.

The plain loop is what one would write by hand: for each client, load the model, step ``torch.optim.SGD`` through its
batches, and add the weighted parameters. The data are random numbers of the right shape, since speed does not depend on
their values.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

import fedalpha
from fedalpha.data import Examples, Pooled
from fedalpha.fast.threads import single_thread
from fedalpha.models import MODELS
from fedalpha.rng import generator
from fedalpha.runs.callbacks import Callback


@dataclass(frozen=True)
class Work:
    """A model, and how many samples of which shape each client trains on."""

    model: str
    shape: tuple[int, ...]
    classes: int
    samples: int
    batch: int
    symbols: bool = False
    clients: int = 4

    def data(self, scale: float = 1.0) -> Pooled:
        count = max(self.batch, round(scale * self.samples)) * self.clients
        draw = torch.Generator().manual_seed(0)
        targets = (count, *self.shape) if self.symbols else (count,)
        y = torch.randint(self.classes, targets, generator=draw)
        x = torch.randint(self.classes, (count, *self.shape), generator=draw) if self.symbols else None
        x = torch.rand(count, *self.shape, generator=draw) if x is None else x
        parts = generator(0, "loops").permutation(count).reshape(self.clients, -1)
        few = (x[:2], y[:2])
        return fedalpha.federation((x, y), partition=list(parts), test=few, classes=self.classes)


WORKS = {
    "resnet, group norm": Work("resnet", (3, 32, 32), 10, 256, 32),
    "resnet, batch norm": Work("resnet(norm=batch)", (3, 32, 32), 10, 256, 32),
    "lenet": Work("lenet", (3, 32, 32), 10, 1024, 64),
    "lstm": Work("lstm", (80,), 80, 40, 4, symbols=True),
    "transformer": Work("transformer", (80,), 80, 40, 4, symbols=True),
}


class _Seconds(Callback):
    """The seconds of each round."""

    def __init__(self) -> None:
        self.rounds: list[float] = []

    def on_round(self, row: dict[str, object], state: object) -> None:
        self.rounds.append(float(row["seconds"]))  # type: ignore[arg-type]


def measure(out: Path, turns: int = 5, scale: float = 1.0, say: Callable[[str], None] = print) -> dict[str, object]:
    """The median seconds a round of both, and the median, least and largest ratio of neighbouring rounds."""
    found: dict[str, object] = {}
    for name, work in WORKS.items():
        data = work.data(scale)
        pairs = [_turn(work, data, turn) for turn in range(turns + 1)][1:]  # the first turn warms up
        ratios = [ours / plain for ours, plain in pairs]
        ours, plain = (statistics.median(side) for side in zip(*pairs, strict=True))
        found[name] = {
            "model": work.model,
            "fedalpha": round(ours, 4),
            "plain": round(plain, 4),
            "ratio": round(statistics.median(ratios), 3),
            "least": round(min(ratios), 3),
            "largest": round(max(ratios), 3),
            "turns": turns,
        }
        say(f"{name}: {ours:.3f} s a round, plain loop {plain:.3f} s: ratio {statistics.median(ratios):.2f}")
    out.mkdir(parents=True, exist_ok=True)
    (out / "loops.json").write_text(json.dumps(found, indent=1) + "\n")
    return found


def _turn(work: Work, data: Pooled, turn: int) -> tuple[float, float]:
    """The seconds of one round of each; which one begins changes from turn to turn."""
    sides = [lambda: _ours(work, data, turn), lambda: _plain(work, data)]
    found = {}
    for side in (0, 1) if turn % 2 == 0 else (1, 0):
        found[side] = sides[side]()
    return found[0], found[1]


def _ours(work: Work, data: Pooled, seed: int) -> float:
    watch = _Seconds()
    update = f"sgd(lr=0.01, batch={work.batch}, momentum=0.9)"
    fedalpha.run(
        data,
        work.model,
        rounds=2,
        seed=seed,
        update=update,
        evaluate=2,
        engine="embedded(workers=1)",
        callbacks=[watch],
    )
    return watch.rounds[1]  # row 0 is the initial model; round 1 evaluates nothing


def _plain(work: Work, data: Pooled) -> float:
    with single_thread():
        model = MODELS.parse(work.model).layers(data.shape, data.classes)
        start = {name: value.clone() for name, value in model.state_dict().items()}
        began = time.perf_counter()
        total: dict[str, Tensor] = {}
        for client in range(data.clients):
            model.load_state_dict(start)
            _train(model, data.client(client), work.batch)
            for name, value in model.state_dict().items():
                part = value.to(torch.float64) / data.clients
                total[name] = total[name] + part if name in total else part
        model.load_state_dict({name: value.to(start[name].dtype) for name, value in total.items()})
        return time.perf_counter() - began


def _train(model: nn.Module, data: Examples, batch: int) -> None:
    model.train()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for part in torch.split(torch.randperm(len(data)), batch):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(data.x[part]), data.y[part]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
