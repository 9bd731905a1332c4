"""The Flower engine: each client is a SuperNode of Flower's simulation runtime.

The round is fedalpha's own, so every plug point works, and the bytes are those of the embedded engine.
For a federation of real machines see `fedalpha.flower`.
"""

from __future__ import annotations

import logging
import os
import pickle
import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
try:
    import ray
    from flwr.app import ConfigRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.simulation import run_simulation
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"--engine flower needs Flower and Ray ({error.name} is missing): pip install 'fedalpha[flower,ray]'",
        name=error.name,
    ) from None

from fedalpha.combine import Reports, Sum
from fedalpha.combine.sums import Scale
from fedalpha.data.federations import Federation
from fedalpha.engine.backends.embedded import Embedded
from fedalpha.engine.backends.pool import WorkerError
from fedalpha.engine.backends.ray import _fetched, connect
from fedalpha.engine.backends.site import Query
from fedalpha.fast.blocks import blocks
from fedalpha.fast.threads import single_thread
from fedalpha.flower.exchange import exchange
from fedalpha.flower.pytorch import to_arrays, to_parameters
from fedalpha.flower.replies import Rejected, content_of
from fedalpha.round import Evaluation, Ids, Part, Sample, Train
from fedalpha.strategies import Array
from fedalpha.task import Task
from fedalpha.update import Broadcast, Report, Update

_AT_ONCE = 64
"""Clients asked at once: their models are in memory together."""


class Flower:
    """Runs clients as SuperNodes; the server's own evaluation stays in this process."""

    def __init__(
        self,
        federation: Federation,
        task: Task,
        update: Update,
        seed: int,
        workers: int | None = None,
        device: str = "cpu",
    ) -> None:
        self._server = Embedded(federation, task, update, seed, 1, device)
        self._architecture: Any = None
        self._done = threading.Event()
        self._grids: queue.Queue[Grid | BaseException] = queue.Queue()
        self._log = logging.getLogger("flwr")
        self._level = self._log.level
        self._log.setLevel(logging.CRITICAL)
        connect(None, workers)
        client = _Client(ray.put(self._server.site))
        app = ClientApp()
        app.query("loss")(client.loss)
        app.train()(client.train)
        self._thread = threading.Thread(target=self._simulate, args=(app, federation.clients), daemon=True)
        self._thread.start()
        try:
            self._grid = self._received()
            self._nodes = self._introduced(federation.clients)
        except BaseException:
            self.close()
            raise

    def losses(self, broadcast: Broadcast, ids: Ids, sample: Sample | None = None) -> Array:
        config = self._config(broadcast, sample=pickle.dumps(sample))
        content = {"arrays": to_arrays(broadcast.parameters), "config": config}
        found = self._ask("query.loss", [(id, content) for id in ids.tolist()])
        return np.array([pickle.loads(reply["config"]["loss"]) for reply in found])

    def update(self, broadcast: Broadcast, job: Train) -> Reports:
        arrays, extras = to_arrays(broadcast.parameters), to_arrays(broadcast.extras)
        reports: list[Report] = []
        total = None if job.alpha is None else Sum()
        scale = None if job.alone is None else Scale(job.alone, broadcast.parameters)
        for some in _groups(len(job.ids)):
            tasks = []
            for place in (p for block in some for p in block):
                id = int(job.ids[place])
                order = pickle.dumps((job.round, job.states.get(id, {}), job.wanted))
                config = self._config(broadcast, order=order)
                tasks.append((id, {"arrays": arrays, "extras": extras, "config": config}))
            replies = self._ask("train", tasks)
            for block in some:
                part = Sum()
                for place in block:
                    reply = next(replies)
                    losses, steps, samples, state, *told = pickle.loads(reply["config"]["report"])
                    model = to_parameters(reply["arrays"])
                    if job.alpha is not None:
                        part.add(float(job.alpha[place]), model, scale)
                    kept = None if job.alpha is not None else model
                    sent = to_parameters(reply["extras"])
                    labels, uploaded = told
                    report = Report(
                        int(job.ids[place]), kept, losses, steps, samples, sent, state, labels=labels, uploaded=uploaded
                    )
                    reports.append(report)
                if total is not None:
                    total.merge(part)
        return Reports.of_sum(reports, total, broadcast)

    def evaluate(self, broadcast: Broadcast, part: Part) -> Evaluation:
        return self._server.evaluate(broadcast, part)

    def close(self) -> None:
        self._done.set()
        self._thread.join()
        self._log.setLevel(self._level)
        self._server.close()

    def _simulate(self, client: ClientApp, clients: int) -> None:
        server = ServerApp()

        @server.main()
        def main(grid: Grid, context: Context) -> None:
            self._grids.put(grid)
            self._done.wait()

        try:
            run_simulation(server, client, clients, backend_config={"client_resources": {"num_cpus": 1}})
        except BaseException as error:
            self._grids.put(error)

    def _received(self) -> Grid:
        found = self._grids.get()
        if isinstance(found, BaseException):
            raise WorkerError(f"Flower's simulation runtime did not start: {found}") from found
        return found

    def _introduced(self, clients: int) -> dict[int, int]:
        """Client id → node id."""
        while len(nodes := list(self._grid.get_node_ids())) < clients:
            self._check()
            self._done.wait(0.1)
        content = RecordDict({"config": ConfigRecord({"hello": True})})
        messages = [Message(content=content, message_type="query.loss", dst_node_id=node) for node in nodes]
        replies = self._exchange(messages)
        return {int(str(replies[node]["config"]["client"])): node for node in nodes}

    def _ask(self, kind: str, tasks: Iterable[tuple[int, dict[str, Any]]]) -> Iterator[Any]:
        messages = [
            Message(content=RecordDict(content), message_type=kind, dst_node_id=self._nodes[id])
            for id, content in tasks
        ]
        replies = self._exchange(messages)
        yield from (replies[m.metadata.dst_node_id] for m in messages)

    def _exchange(self, messages: list[Message]) -> dict[int, Any]:
        """The answers of all clients. An error in a client ends the run, as in the embedded engine."""
        try:
            return {n: content_of(r) for n, r in exchange(self._grid, messages, None, longest_pause=0.3).items()}
        except Rejected as reason:
            raise WorkerError(f"a client failed in Flower's simulation runtime: {reason}") from None

    def _check(self) -> None:
        if not self._grids.empty():
            self._received()

    def _config(self, broadcast: Broadcast, **more: bytes) -> ConfigRecord:
        """What is sent besides arrays. Pickling is safe here: messages stay within the processes of one simulation."""
        if self._architecture is not broadcast.architecture:
            self._architecture = broadcast.architecture
            self._architecture_ref = ray.cloudpickle.dumps(ray.put(broadcast.architecture))  # type: ignore[no-untyped-call]
        return ConfigRecord({"architecture": self._architecture_ref, **more})


class _Client:
    """What a SuperNode does; the site is fetched once per process."""

    def __init__(self, site: Any) -> None:
        self.site = site

    def loss(self, message: Message, context: Context) -> Message:
        config: Any = message.content["config"]
        if "hello" in config:
            return Message(RecordDict({"config": ConfigRecord({"client": _id(context)})}), reply_to=message)
        with single_thread():
            sample = pickle.loads(config["sample"])
            found = _fetched("site", self.site).losses(_broadcast(message), Query([_id(context)], sample))[0]
        return Message(RecordDict({"config": ConfigRecord({"loss": pickle.dumps(found)})}), reply_to=message)

    def train(self, message: Message, context: Context) -> Message:
        content: Any = message.content
        round, state, wanted = pickle.loads(content["config"]["order"])
        with single_thread():
            report = _fetched("site", self.site).train(_broadcast(message), _id(context), round, state, wanted)
        counts = report.labels, report.uploaded
        told = pickle.dumps((dict(report.losses), report.steps, report.samples, dict(report.state), *counts))
        reply = RecordDict(
            {
                "arrays": to_arrays(report.parameters),
                "extras": to_arrays(report.extras),
                "config": ConfigRecord({"report": told}),
            }
        )
        return Message(reply, reply_to=message)


def _id(context: Context) -> int:
    return int(context.node_config["partition-id"])


def _broadcast(message: Message) -> Broadcast:
    content: Any = message.content
    architecture = _fetched("architecture", pickle.loads(content["config"]["architecture"]))
    extras = to_parameters(content["extras"]) if "extras" in content else {}
    return Broadcast(architecture, to_parameters(content["arrays"]), extras)


def _groups(m: int) -> Iterator[list[range]]:
    """The blocks of a cohort in groups of about `_AT_ONCE` clients."""
    group: list[range] = []
    for block in blocks(m):
        group.append(block)
        if sum(map(len, group)) >= _AT_ONCE:
            yield group
            group = []
    if group:
        yield group
