"""The embedded engine: this machine, one process or several forked workers."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import mmap
import os
import tempfile
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedalpha.combine import Reports, Sum
from fedalpha.data.federations import Federation
from fedalpha.engine.backends.layout import Layout, copy_into
from fedalpha.engine.backends.pool import PLACES, Pool
from fedalpha.engine.backends.site import ClientSite, Order
from fedalpha.fast.compiled import numba_version
from fedalpha.models import Parameters
from fedalpha.round import Evaluation, Ids, Part, Sample, Train
from fedalpha.strategies import Array
from fedalpha.task import Task
from fedalpha.update import Broadcast, Report, Update

_LARGE = 1 << 24
"""Models of as many bytes have one sum per worker, which is merged in its turn: waiting costs less than a copy."""


class Embedded:
    """Runs clients on this machine. ``workers`` sets the parallelism; it does not change the result."""

    def __init__(
        self,
        federation: Federation,
        task: Task,
        update: Update,
        seed: int,
        workers: int | None = None,
        device: str = "cpu",
        vectorise: bool | None = None,
        mapped: bool = False,
    ) -> None:
        if workers is None:
            workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if workers < 1:
            raise ValueError(f"workers = {workers}; give at least 1")
        workers = min(workers, federation.clients)
        try:
            torch.zeros(1, device=device)
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"device = {device!r} cannot be used here: {error}; use cpu") from None
        self.site = ClientSite(federation, task, update, seed, device, vectorise)
        alone = workers == 1 or not hasattr(os, "fork") or torch.device(device).type != "cpu"
        self._crew = None if alone else _Crew(self.site, workers, mapped)
        self._keep = _clone if not mapped else _map

    def losses(self, broadcast: Broadcast, ids: Ids, sample: Sample | None = None) -> Array:
        queries = self.site.queries(ids, sample)
        if self._crew is None:
            found = [self.site.losses(broadcast, query) for query in queries]
        else:
            found = self._crew.run(broadcast, [("losses", query) for query in queries])
        return np.array([loss for part in found for loss in part])

    def update(self, broadcast: Broadcast, job: Train) -> Reports:
        orders = self.site.orders(broadcast, job)
        if self._crew is not None:
            return self._crew.train(broadcast, orders)
        reports: list[Report] = []
        total = None if job.alpha is None else Sum()
        for order in orders:
            some, sums = self.site.fulfil(broadcast, order, self._keep)
            reports += some
            if total is not None:
                total.merge(*sums)
            del sums  # or they would be in memory while the next ones are computed
        return Reports.of_sum(reports, total, broadcast)

    def evaluate(self, broadcast: Broadcast, part: Part) -> Evaluation:
        starts = self.site.evaluation_tasks(part)
        if self._crew is None:
            found = [self.site.evaluate(broadcast, part, start) for start in starts]
        else:
            found = self._crew.run(broadcast, [("evaluate", (part, start)) for start in starts])
        correct = [c for _, c in found if c is not None]
        loss = math.fsum(loss for loss, _ in found)
        count = len(self.site.part(part))
        return Evaluation(loss / count, np.concatenate(correct) if correct else None)

    def close(self) -> None:
        if self._crew is not None:
            self._crew.close()


def _clone(place: int, parameters: Parameters) -> Parameters:
    """A copy in contiguous layout, whatever layout the client trained in."""
    plain = torch.contiguous_format
    return {name: value.detach().to("cpu", copy=True, memory_format=plain) for name, value in parameters.items()}


def _map(place: int, parameters: Parameters) -> Parameters:
    """A copy in a file."""
    kept = _Row(Layout.of(parameters), mapped=True).lend()
    copy_into(kept, parameters)
    return kept


class _Crew:
    """Workers with shared memory for the broadcast, for sums, and for the models of a cohort (or files for these)."""

    def __init__(self, site: ClientSite, workers: int, mapped: bool = False) -> None:
        self.site = site
        self.workers = workers
        self.mapped = mapped
        self._pool: Pool | None = None
        self._shape: Any = None
        self._room = 0
        self._rows: list[_Row] = []

    def run(self, broadcast: Broadcast, tasks: list[tuple[str, Any]]) -> list[Any]:
        """Results in the order of the tasks."""
        pool = self._ready(broadcast)
        results: list[Any] = [None] * len(tasks)
        for index, _, result in pool.map(tasks):
            results[index] = result
        return results

    def train(self, broadcast: Broadcast, orders: list[Order]) -> Reports:
        if not orders:  # all clients of the order have dropped out
            return Reports([])
        summing = orders[0].alpha is not None
        rows = 0 if summing else sum(len(order.ids) for order in orders)
        pool = self._ready(broadcast, rows, max(len(order.blocks) for order in orders))
        first = np.cumsum([0] + [len(order.ids) for order in orders])
        found: dict[int, list[Report]] = {}
        early: dict[int, list[Sum]] = {}
        total = Sum() if summing else None
        merged = 0
        for index, place, (reports, told) in pool.map(
            [("train", (int(first[i]), order)) for i, order in enumerate(orders)], ordered=summing
        ):
            if total is not None:
                parts = [Sum(values, *most) for values, most in zip(self._sums[place], told, strict=False)]
                if index == merged:
                    total.merge(*parts)
                    merged += 1
                    while merged in early:
                        total.merge(*early.pop(merged))
                        merged += 1
                else:
                    early[index] = [part.copy() for part in parts]
            else:
                reports = [
                    dataclasses.replace(r, parameters=self._rows[int(first[index]) + i].lend())
                    for i, r in enumerate(reports)
                ]
            found[index] = reports
        return Reports.of_sum([r for index in range(len(orders)) for r in found[index]], total, broadcast)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _ready(self, broadcast: Broadcast, rows: int = 0, sums: int = 1) -> Pool:
        """A pool whose shared memory holds this broadcast, with room for ``rows`` models and ``sums`` per worker."""
        shape = (Layout.of(broadcast.parameters), Layout.of(broadcast.extras), broadcast.architecture)
        known = self._pool is not None and shape[:2] == self._shape[:2] and shape[2] is self._shape[2]
        taken = rows > len(self._rows) or any(row.lent for row in self._rows[:rows])
        if self._pool is None or not known or taken or sums > self._room:
            self.close()
            self._shape, self._room = shape, sums
            parameters, extras, architecture = shape
            wide = Layout.of(broadcast.parameters, wide=True)
            self._here = Broadcast(
                architecture, parameters.views(_shared(parameters.nbytes)), extras.views(_shared(extras.nbytes))
            )
            large = parameters.nbytes >= _LARGE
            if large and numba_version() is not None:
                from fedalpha.fast.kernels import load

                load()  # once for all workers, which need them for their sums

            places = 1 if large else PLACES
            self._sums = [[wide.views(_shared(wide.nbytes)) for _ in range(sums)] for _ in range(places * self.workers)]
            self._rows = [_Row(parameters, self.mapped) for _ in range(rows)]
            copy_into(self._here.parameters, broadcast.parameters)
            with _given_back(broadcast.parameters if large else {}, self._here.parameters):
                self._pool = Pool(self.workers, self._handle, places)
        copy_into(self._here.parameters, broadcast.parameters)
        copy_into(self._here.extras, broadcast.extras)
        return self._pool

    def _handle(self, place: int, task: tuple[str, Any]) -> Any:
        """Runs in a worker."""
        match task:
            case ("losses", query):
                return self.site.losses(self._here, query)
            case ("evaluate", (part, start)):
                return self.site.evaluate(self._here, part, start)
            case ("train", (first, order)):

                def keep(client: int, parameters: Parameters) -> None:
                    copy_into(self._rows[first + client].lend(), parameters)

                reports, sums = self.site.fulfil(self._here, order, keep, self._sums[place])
                for mine, part in zip(self._sums[place], sums, strict=False):
                    copy_into(mine, {k: v for k, v in part.values.items() if v is not mine[k]})
                return reports, [(part.heaviest, part.alone) for part in sums]
        raise ValueError(f"unknown task {task!r}")


class _Row:
    """Shared memory for one client's model. It is lent without a copy, and not written while it is in use.

    ``mapped``: it lies in a file that has no name, so that nothing is left behind when processes are killed.
    """

    def __init__(self, layout: Layout, mapped: bool) -> None:
        self._layout = layout
        self._memory = _file(layout.nbytes) if mapped else mmap.mmap(-1, max(layout.nbytes, 1))
        self._owner: weakref.ref[Any] | None = None

    @property
    def lent(self) -> bool:
        """Whether a tensor of the last model, or a view of one, still exists in this process."""
        return self._owner is not None and self._owner() is not None

    def lend(self) -> Parameters:
        """The model, in this memory."""
        owner = np.frombuffer(self._memory, dtype=np.uint8)  # lives as long as any tensor over it
        self._owner = weakref.ref(owner)
        return self._layout.views(torch.from_numpy(owner))


def _file(nbytes: int) -> mmap.mmap:
    """A file in memory's place. Its space is taken at once: a full disk would otherwise kill the process later."""
    try:
        with tempfile.TemporaryFile(prefix="fedalpha-") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, max(nbytes, 1))
            else:
                file.truncate(max(nbytes, 1))
            return mmap.mmap(file.fileno(), max(nbytes, 1))
    except OSError as error:
        raise RuntimeError(
            f"updates=mapped: {nbytes:,} bytes for the model of a client cannot be kept in {tempfile.gettempdir()}: "
            f"{error.strerror}; free space, or set TMPDIR to a folder on a larger disk"
        ) from None


@contextlib.contextmanager
def _given_back(parameters: Parameters, copy: Parameters) -> Iterator[None]:
    """The memory of these tensors is free while this is open; then it is filled from ``copy``.

    Processes that are forked meanwhile do not inherit it: they would keep the model of the first round in memory.
    Tensors that share their memory with others, or with NumPy, stay as they are.
    """
    freed = []
    for name, value in parameters.items():
        store = value.untyped_storage()
        if store.resizable() and store.device.type == "cpu" and store.nbytes() == value.nbytes > 0:
            freed.append((name, store, store.nbytes()))
            store.resize_(0)
    try:
        yield
    finally:
        for name, store, size in freed:
            store.resize_(size)
            parameters[name].detach().copy_(copy[name])


def _shared(nbytes: int) -> Tensor:
    """Anonymous memory that forked children share; it leaves nothing behind when processes are killed."""
    return torch.frombuffer(mmap.mmap(-1, max(nbytes, 1)), dtype=torch.uint8)
