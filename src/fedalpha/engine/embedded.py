"""The embedded engine: this machine, one process or several forked workers."""

from __future__ import annotations

import dataclasses
import math
import mmap
import os
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedalpha.combine import Reports, Sum, blocks
from fedalpha.data.federations import Federation
from fedalpha.engine.base import Evaluation, Ids, Job, Part, Sample
from fedalpha.engine.layout import Layout, copy_into
from fedalpha.engine.pool import Pool
from fedalpha.engine.site import ClientSite
from fedalpha.models import Parameters
from fedalpha.strategies import Array
from fedalpha.task import Task
from fedalpha.update import Broadcast, Report, Update


class Embedded:
    """Runs clients here. ``workers`` sets the parallelism and nothing else: the bytes are the same."""

    def __init__(
        self,
        federation: Federation,
        task: Task,
        update: Update,
        seed: int,
        workers: int | None = None,
        device: str = "cpu",
        vectorise: bool | None = None,
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
        self._crew = None if alone else _Crew(self.site, workers)

    def losses(self, broadcast: Broadcast, ids: Ids, sample: Sample | None = None) -> Array:
        parts = [[int(ids[i]) for i in block] for block in blocks(len(ids))]
        if self._crew is None:
            found = [self.site.losses(broadcast, part, sample) for part in parts]
        else:
            found = self._crew.run(broadcast, [("losses", (part, sample)) for part in parts])
        return np.array([loss for part in found for loss in part])

    def update(self, broadcast: Broadcast, job: Job) -> Reports:
        tasks = []
        for block in blocks(len(job.ids)):
            ids = [int(job.ids[i]) for i in block]
            states = [job.states.get(i, {}) for i in ids]
            alpha = None if job.alpha is None else job.alpha[block.start : block.stop].tolist()
            tasks.append((ids, job.round, states, job.wanted, alpha))
        if self._crew is not None:
            return self._crew.train(broadcast, tasks)
        reports: list[Report] = []
        total = None if job.alpha is None else Sum()
        for task in tasks:
            some, part = self.site.train_block(broadcast, *task, keep=_clone)
            reports += some
            if total is not None and part is not None:
                total.merge(part)
        return Reports(reports, total)

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
    return {name: value.detach().to("cpu", copy=True) for name, value in parameters.items()}


class _Crew:
    """Workers with shared memory for the broadcast, for sums, and for the models of a cohort."""

    def __init__(self, site: ClientSite, workers: int) -> None:
        self.site = site
        self.workers = workers
        self._pool: Pool | None = None
        self._shape: Any = None
        self._rows = 0

    def run(self, broadcast: Broadcast, tasks: list[tuple[str, Any]]) -> list[Any]:
        """Results in the order of the tasks."""
        pool = self._ready(broadcast, rows=0)
        results: list[Any] = [None] * len(tasks)
        for index, _, result in pool.map(tasks):
            results[index] = result
        return results

    def train(self, broadcast: Broadcast, tasks: list[Any]) -> Reports:
        summing = tasks[0][-1] is not None
        rows = 0 if summing else sum(len(task[0]) for task in tasks)
        pool = self._ready(broadcast, rows)
        first = np.cumsum([0] + [len(task[0]) for task in tasks])
        orders = [("train", (int(first[i]), task)) for i, task in enumerate(tasks)]
        found: dict[int, list[Report]] = {}
        early: dict[int, Sum] = {}
        total = Sum() if summing else None
        merged = 0
        for index, worker, (reports, heaviest) in pool.map(orders):
            if total is not None:
                part = Sum()
                part.values, part.heaviest = self._sums[worker], heaviest
                if index == merged:
                    total.merge(part)
                    merged += 1
                    while merged in early:
                        total.merge(early.pop(merged))
                        merged += 1
                else:
                    early[index] = Sum()
                    early[index].merge(part)
            else:
                reports = [
                    dataclasses.replace(r, parameters=_clone(0, self._models[int(first[index]) + i]))
                    for i, r in enumerate(reports)
                ]
            found[index] = reports
        return Reports([r for index in range(len(tasks)) for r in found[index]], total)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _ready(self, broadcast: Broadcast, rows: int) -> Pool:
        """A pool whose shared memory fits this broadcast and ``rows`` models, holding the broadcast."""
        shape = (Layout.of(broadcast.parameters), Layout.of(broadcast.extras), broadcast.architecture)
        if self._pool is None or shape[:2] != self._shape[:2] or shape[2] is not self._shape[2] or rows > self._rows:
            self.close()
            self._shape, self._rows = shape, rows
            parameters, extras, architecture = shape
            wide = Layout.of(broadcast.parameters, wide=True)
            self._here = Broadcast(
                architecture, parameters.views(_shared(parameters.nbytes)), extras.views(_shared(extras.nbytes))
            )
            self._sums = [wide.views(_shared(wide.nbytes)) for _ in range(self.workers)]
            self._models = [parameters.views(_shared(parameters.nbytes)) for _ in range(rows)]
            self._pool = Pool(self.workers, self._handle)
        copy_into(self._here.parameters, broadcast.parameters)
        copy_into(self._here.extras, broadcast.extras)
        return self._pool

    def _handle(self, worker: int, task: tuple[str, Any]) -> Any:
        """Runs in a worker."""
        match task:
            case ("losses", (ids, sample)):
                return self.site.losses(self._here, ids, sample)
            case ("evaluate", (part, start)):
                return self.site.evaluate(self._here, part, start)
            case ("train", (first, order)):

                def keep(place: int, parameters: Parameters) -> None:
                    copy_into(self._models[first + place], parameters)

                reports, total = self.site.train_block(self._here, *order, keep=keep)
                if total is not None:
                    copy_into(self._sums[worker], total.values)
                return reports, None if total is None else total.heaviest
        raise ValueError(f"unknown task {task!r}")


def _shared(nbytes: int) -> Tensor:
    """Anonymous memory that forked children share; it leaves nothing behind when processes are killed."""
    return torch.frombuffer(mmap.mmap(-1, max(nbytes, 1)), dtype=torch.uint8)
