"""What a live server costs: time and memory of an aggregation against Flower's FedAvg, and memory while it streams."""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pages import put
from fedalpha.runs.machine import versions

LAYERS = 267
"""Arrays of a model, as many as a ResNet-50 has."""


def measure(
    out: Path, turns: int, values: int, clients: Iterable[int], streamed: Iterable[int], page: Path | None = None
) -> dict[str, Any]:
    """Run everything, in processes of their own; writes server.json and server.md, and the tables into ``page``."""
    found: dict[str, Any] = {"versions": versions(), "values": values, "turns": turns}
    found |= {"aggregation": [], "streaming": []}
    for count in clients:
        found["aggregation"].append(_apart("aggregation", count, values, turns))
    for count in streamed:
        found["streaming"].append(_apart("streaming", count, values, 1))
    out.mkdir(parents=True, exist_ok=True)
    (out / "server.json").write_text(json.dumps(found, indent=1) + "\n")
    (out / "server.md").write_text(table(found))
    if page is not None:
        put(page, "server", table(found))
    return found


def table(found: dict[str, Any]) -> str:
    """Both tables as Markdown."""
    lines = [
        "| clients | FedAvg (s) | FedAlpha (s) | ratio | ratio of processor times "
        "| FedAvg, extra models | FedAlpha, extra models |"
    ]
    lines += ["|---:|---:|---:|---:|---:|---:|---:|"]
    for row in found["aggregation"]:
        seconds, extra = row["seconds"], row["extra_models"]
        lines.append(
            f"| {row['clients']} | {seconds['FedAvg']:.2f} | {seconds['FedAlpha']:.2f} | {row['ratio']:.2f} "
            f"| {row['cpu_ratio']:.2f} | {extra['FedAvg']:.2f} | {extra['FedAlpha']:.2f} |"
        )
    lines += ["", "| clients | peak above the process's own, in models |", "|---:|---:|"]
    lines += [f"| {row['clients']} | {row['peak_models']:.2f} |" for row in found["streaming"]]
    return "\n".join(lines) + "\n"


def _apart(what: str, clients: int, values: int, turns: int) -> Any:
    command = [sys.executable, "-m", "benchmarks.server", what, str(clients), str(values), str(turns)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def aggregation(clients: int, values: int, turns: int) -> dict[str, Any]:
    """Flower's FedAvg and FedAlpha aggregate the same replies, in turns; then the peak of each, traced."""
    from flwr.serverapp.strategy import FedAvg

    grid = _Grid(clients, values, kinds=3)
    ours, theirs = _alpha(), FedAvg(fraction_evaluate=0.0)
    first = grid.model(grid.kinds)  # no client sends it back unchanged
    ours.resume(first)

    def play(rule: Any, number: int, traced: bool) -> tuple[float, float]:
        """The seconds and those of the processor, or the peak in models, twice."""
        messages = list(rule.configure_train(number, first, _config(), grid))
        replies = [grid.reply(message) for message in messages]
        if traced:
            tracemalloc.start()
        begun, busy = time.perf_counter(), time.process_time()
        rule.aggregate_train(number, replies)
        took = time.perf_counter() - begun, time.process_time() - busy
        if traced:
            peak = tracemalloc.get_traced_memory()[1] / (4 * values)
            took = peak, peak
            tracemalloc.stop()
        if rule is ours:
            rule.aggregate_evaluate(number, [])
        return took

    taken: dict[str, list[tuple[float, float]]] = {"FedAvg": [], "FedAlpha": []}
    for turn in range(turns + 1):
        for rule in (ours, theirs) if turn % 2 else (theirs, ours):
            took = play(rule, turn + 1, False)
            if turn:  # the first turn warms up
                taken["FedAlpha" if rule is ours else "FedAvg"].append(took)
    extra = {"FedAvg": play(theirs, turns + 2, True)[0], "FedAlpha": play(ours, turns + 2, True)[0]}
    pairs = list(zip(taken["FedAlpha"], taken["FedAvg"], strict=True))
    return {
        "clients": clients,
        "seconds": {name: statistics.median(seconds for seconds, _ in found) for name, found in taken.items()},
        "ratio": statistics.median(a / b for (a, _), (b, _) in pairs),
        "cpu_ratio": statistics.median(a / b for (_, a), (_, b) in pairs),
        "extra_models": extra,
    }


def streaming(clients: int, values: int, turns: int) -> dict[str, Any]:
    """The peak of a whole run of two rounds in which replies are made as they are pulled."""
    rule = _alpha()
    grid = _Grid(clients, values, kinds=1)
    first = grid.model(0)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # with the model of which the grid sends copies
    rule.start(grid, first, num_rounds=2, timeout=60)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - own
    return {"clients": clients, "peak_models": 1024 * peak / (4 * values)}


def _alpha() -> Any:
    from fedalpha.flower import FedAlpha

    return FedAlpha("FedAvg", fraction_evaluate=0.0, bound=1e4)


def _config() -> Any:
    from flwr.app import ConfigRecord

    return ConfigRecord()


def _grid() -> Any:
    from flwr.serverapp import Grid

    return Grid


class _Grid(_grid()):  # type: ignore[misc]
    """Clients that answer at once; a model is made when its reply is pulled, from ``kinds`` different ones."""

    def __init__(self, clients: int, values: int, kinds: int) -> None:
        from flwr.supercore.task_identity import TaskIdentity

        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
        self.clients, self.values, self.kinds = clients, values, kinds
        self._sent: dict[str, Any] = {}
        self._made: dict[int, Any] = {}

    def model(self, kind: int) -> Any:
        from flwr.app import Array, ArrayRecord

        if kind not in self._made:
            rng, size = np.random.default_rng(kind), self.values // LAYERS
            layers = {f"layer{i}": rng.standard_normal(size, dtype=np.float32) for i in range(LAYERS)}
            self._made[kind] = ArrayRecord({name: Array(value) for name, value in layers.items()})
        return self._made[kind]

    def reply(self, message: Any) -> Any:
        from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict

        if message.metadata.message_type == "query.client":
            told = MetricRecord({"client-id": message.metadata.dst_node_id, "num-examples": 10})
            return Message(RecordDict({"metrics": told}), reply_to=message)
        kind = message.metadata.dst_node_id % self.kinds
        arrays = self.model(kind)
        if self.kinds == 1:  # a reply as it comes from the network, in memory of its own
            arrays = ArrayRecord(
                {k: Array(a.dtype, a.shape, a.stype, bytes(memoryview(a.data))) for k, a in arrays.items()}
            )
        metrics = MetricRecord({"num-examples": 10, "train_loss": 1.0})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    def get_node_ids(self) -> list[int]:
        return list(range(1, self.clients + 1))

    def get_nodes(self) -> Any:
        from types import SimpleNamespace

        ids = self.get_node_ids()
        return [SimpleNamespace(node_id=id, name="", public_key=b"", registered_at="") for id in ids]

    def push_messages(self, messages: Iterable[Any]) -> list[str]:
        names = []
        for message in messages:
            name = f"{len(self._sent)}-{message.metadata.dst_node_id}"
            message.metadata.__dict__["_message_id"] = name
            self._sent[name] = message
            names.append(name)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> list[Any]:
        return [self.reply(self._sent[name]) for name in message_ids]

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> list[Any]:
        return self.pull_messages(self.push_messages(messages))

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


if __name__ == "__main__":
    kind, *numbers = sys.argv[1:]
    print(json.dumps({"aggregation": aggregation, "streaming": streaming}[kind](*map(int, numbers))))
