"""The cells of a study on a Ray cluster: each is a task, and its result is stored on this machine.

A cell whose node fails is run again on another node, with the same bytes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import ray

from fedalpha.analysis.columns import PerClient
from fedalpha.engine.backends.ray import RETRIES, connect
from fedalpha.study.cells import Cell
from fedalpha.study.crew import Crew, Watch, measure, note_running, note_time, shares
from fedalpha.study.store import Store


class RayCrew(Crew):
    """The running cells on the cluster at ``address``."""

    goes_on = False  # states stay on the machine that made them

    def __init__(
        self, store: Store, cells: Sequence[Cell], per_client: PerClient, watch: Watch | None, address: str
    ) -> None:
        super().__init__(store, cells, per_client, watch)
        self.address = address
        self._by_key = {cell.key: cell for cell in self.cells}

    def run(self, jobs: int | None = None) -> dict[str, str]:
        owned = connect(self.address)
        try:
            return super().run(jobs)
        finally:
            if owned:
                ray.shutdown()

    def room(self) -> int:
        return max(1, int(ray.cluster_resources().get("CPU", 1)))  # type: ignore[no-untyped-call]

    def launch(self, cell: Cell) -> Any:
        self.store.drop_log(f"{cell.key}.error")
        note_running(self.store, cell, started=time.time())
        return _cell.remote(cell, self.kept(cell))

    def wait(self) -> None:
        ray.wait(list(self.running.values()), timeout=1.0)

    def stop(self) -> None:
        for task in self.running.values():
            with suppress(Exception):
                ray.cancel(task, force=True)

    def collect(self) -> None:
        ready, _ = ray.wait(list(self.running.values()), num_returns=len(self.running), timeout=0)
        for key in [key for key, task in self.running.items() if task in ready]:
            cell = self._by_key[key]
            self.store.drop_log(f"{key}.running")
            try:
                found, about, seconds = ray.get(self.running.pop(key))
            except ray.exceptions.RayError as error:
                self.errors[key] = f"{cell.label}\n{error}"
                self.store.write_text(self.store.log / f"{key}.error", self.errors[key])
                continue
            self.store.put(cell, found, about | shares(cell, self.donors.get(key)))
            note_time(self.store, cell, len(found["round"]) - 1, seconds)
            self.done.add(key)


@ray.remote(num_cpus=1, max_retries=RETRIES)
def _cell(cell: Cell, per_client: PerClient) -> tuple[dict[str, list[Any]], dict[str, Any], float]:
    started = time.time()
    return *measure(cell, per_client, []), time.time() - started
