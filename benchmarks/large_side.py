"""One contestant of `benchmarks.large` in a process of its own: trains some rounds and prints a line of JSON.

``python -m benchmarks.large_side WHO PARAMETERS CLIENTS ROUNDS COMBINE``. WHO is ``plain:2``, a loop in PyTorch on two
threads, or ``workers:2``, the embedded engine with two workers of one thread each. Memory is the summed PSS of the
process and its workers; ``models`` is the part above what it was with all libraries loaded: after a small model was
trained, and the kernels that add large models were loaded.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
from typing import Any

import numpy as np
import torch

from benchmarks.speed.memory import tree, used
from fedalpha.combine import COMBINES
from fedalpha.data import Federation, Generated
from fedalpha.models import initial

SHAPE, CLASSES, SAMPLES, BATCH, LR = (784,), 10, 64, 32, 0.01


def client(id: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(id)
    return rng.normal(size=(SAMPLES, *SHAPE)).astype(np.float32), rng.integers(0, CLASSES, SAMPLES)


def width(parameters: int) -> int:
    """The width of two hidden layers with about this many parameters in all."""
    side = SHAPE[0] + CLASSES
    return int((-side + (side**2 + 4 * parameters) ** 0.5) / 2)


def federation(clients: int) -> Federation:
    return Generated(clients, client, lambda ids: np.full(len(ids), float(SAMPLES)), client(0), classes=CLASSES)


class Peak:
    """The largest summed PSS while it is open; looks every few milliseconds."""

    def __enter__(self) -> Peak:
        self.found, self._done = used(os.getpid())[0], threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            self.found = max(self.found, used(os.getpid())[0])

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()


def plain(parameters: int, clients: int, rounds: int) -> list[tuple[float, float]]:
    """What one would write by hand: a model, a sum in float64, one client after the other."""
    module = torch.nn.Sequential(
        torch.nn.Linear(SHAPE[0], hidden := width(parameters)),
        torch.nn.ReLU(),
        torch.nn.Linear(hidden, hidden),
        torch.nn.ReLU(),
        torch.nn.Linear(hidden, CLASSES),
    )
    current = {name: value.clone() for name, value in module.state_dict().items()}
    data = [client(id) for id in range(clients)]
    found = []
    for _ in range(rounds):
        begun = time.perf_counter(), time.process_time()
        total = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in current.items()}
        for x, y in data:
            module.load_state_dict(current)
            optimiser = torch.optim.SGD(module.parameters(), lr=LR)
            for start in range(0, SAMPLES, BATCH):
                part = slice(start, start + BATCH)
                optimiser.zero_grad()
                loss = torch.nn.functional.cross_entropy(module(torch.from_numpy(x[part])), torch.from_numpy(y[part]))
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
            for name, value in module.state_dict().items():
                total[name].add_(value, alpha=1 / clients)
        current = {name: value.float() for name, value in total.items()}
        found.append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
    return found


def ours(engine: str, parameters: int, clients: int, rounds: int, combine: str) -> list[tuple[float, float]]:
    """Rounds as `fedalpha.run` plays them, without an evaluation."""
    from fedalpha.engine import ENGINES
    from fedalpha.round import Algorithm
    from fedalpha.round.driver import play
    from fedalpha.update import Broadcast, sgd

    people, hidden = federation(clients), width(parameters)
    architecture, first = initial(f"mlp(hidden=[{hidden}, {hidden}])", SHAPE, CLASSES, 0)
    algorithm = Algorithm(update=sgd(lr=LR, batch=BATCH), combine=COMBINES.parse(combine))
    state = algorithm.init(Broadcast(architecture, first), clients)
    del first
    place = ENGINES.parse(engine).start(people, people.task, algorithm.update, 0)
    found = []
    try:
        for _ in range(rounds):
            begun, before = time.perf_counter(), _processor()
            state = play(algorithm, state, place, people, 0).state
            found.append((time.perf_counter() - begun, _processor() - before))
    finally:
        place.close()
    return found


def _processor() -> float:
    """Processor seconds of this process and its living workers."""
    ticks = 0
    for pid in tree(os.getpid()):
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def run(who: str, parameters: int, clients: int, rounds: int, combine: str) -> list[tuple[float, float]]:
    kind, _, count = who.partition(":")
    torch.set_num_threads(int(count) if kind == "plain" else 1)
    if kind == "plain":
        return plain(parameters, clients, rounds)
    return ours(f"embedded(workers={count})", parameters, clients, rounds, combine)


def main() -> None:
    who, parameters, clients, rounds, combine = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
    run(who, 1000, min(clients, 10), 1, combine)  # loads the libraries
    if not who.startswith("plain"):
        importlib.import_module("fedalpha.fast.kernels").load()  # as the first large sum does
    model = 4 * (lambda h: h * (SHAPE[0] + h + 2 + CLASSES) + CLASSES)(width(parameters))
    before = used(os.getpid())[0]
    with Peak() as peak:
        found: Any = run(who, parameters, clients, rounds, combine)
    least = min(found[1:] or found)
    figures = {"seconds": least[0], "processor": least[1], "models": (peak.found - before) / model, "peak": peak.found}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
