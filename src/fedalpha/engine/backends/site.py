"""What one process computes for the clients given to it: losses, updates, evaluations."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fedalpha.combine import Sum, blocks
from fedalpha.combine.sums import Alone, Scale
from fedalpha.data.federations import Examples, Federation, Pooled
from fedalpha.models import Parameters
from fedalpha.rng import Draws
from fedalpha.round import Ids, Part, Sample, Train
from fedalpha.strategies import Array
from fedalpha.task import Task
from fedalpha.update import Broadcast, Report, Site, Update, sgd
from fedalpha.update.base import CHUNK, class_counts
from fedalpha.update.compressed import Compressed
from fedalpha.update.vectorised import LEAST, WIDTH, Stack, portions, stackable, update_many

EVALUATION_CHUNKS = 4
"""Chunks per evaluation task: small enough to share among workers, fixed so that bytes do not vary."""


@dataclass(frozen=True)
class Query:
    """Clients whose losses one process computes: small ones ``together``, in one pass, or one by one."""

    ids: list[int]
    sample: Sample | None = None
    together: bool = False


@dataclass(frozen=True)
class Order:
    """Clients that one process trains: neighbouring blocks of a cohort, of these sizes.

    ``widths``: how many are trained at once, here and in the other orders of the job; none if one by one.
    """

    round: int
    ids: list[int]
    states: list[Mapping[str, Any]]
    wanted: frozenset[str]
    alpha: list[float] | None
    blocks: list[int]
    widths: frozenset[int] = frozenset()
    alone: Alone | None = None


class ClientSite(Site):
    """A `Site` that knows the federation and the client update."""

    def __init__(
        self,
        federation: Federation,
        task: Task,
        update: Update,
        seed: int,
        device: str = "cpu",
        vectorise: bool | None = None,
    ) -> None:
        super().__init__(task, device)
        self.vectorise = vectorise
        self.federation = federation
        self.transform = federation.transform
        self.method = update
        self.compressed = update if isinstance(update, Compressed) else None
        self.seed = seed

    def queries(self, ids: Ids, sample: Sample | None) -> list[Query]:
        """The query for the losses of ``ids``, in parts."""
        together = len(ids) >= LEAST
        return [Query([int(ids[i]) for i in block], sample, together) for block in blocks(len(ids))]

    def losses(self, broadcast: Broadcast, query: Query) -> list[float]:
        """F_i of the broadcast model for each client of a query."""
        module = self.load(broadcast)
        data = (self._sampled(id, query.sample) for id in query.ids)
        return self.each_loss(module, list(data)) if query.together else [self.loss(module, d) for d in data]

    def _sampled(self, id: int, sample: Sample | None) -> Examples:
        data = self.federation.client(id)
        if sample is None or sample.batch >= len(data):
            return data
        rng = Draws(self.seed, sample.round, id)("loss")
        return data[torch.from_numpy(rng.choice(len(data), sample.batch, replace=False))]

    def train(
        self, broadcast: Broadcast, id: int, round: int, state: Mapping[str, Any], wanted: frozenset[str]
    ) -> Report:
        """One client's update; an error names the client."""
        try:
            data = self.federation.client(id)
            report = self.method.update(self, broadcast, data, state, Draws(self.seed, round, id), wanted)
            return self._counted(report, wanted)
        except Exception as error:
            error.add_note(f"(in the update of client {id}, round {round})")
            if "more than 1 value per channel" in str(error):
                error.add_note("(a last batch of one sample: choose another batch size, or sgd(drop_last=true))")
            raise

    def orders(self, broadcast: Broadcast, job: Train) -> list[Order]:
        """The job in parts: one block each, or neighbouring blocks where many clients are trained at once."""
        cut = blocks(len(job.ids))
        together = self._stacks(broadcast, job.ids)
        made = []
        for some in _spans(cut, WIDTH) if together else [[block] for block in cut]:
            part = slice(some[0].start, some[-1].stop)
            ids = job.ids[part].tolist()
            states = [job.states.get(id, {}) for id in ids]
            alpha = None if job.alpha is None else job.alpha[part].tolist()
            made.append(
                Order(job.round, ids, states, job.wanted, alpha, [len(block) for block in some], alone=job.alone)
            )
        if together:
            widths = frozenset(part.stop - part.start for order in made for part in portions(len(order.ids)))
            made = [dataclasses.replace(order, widths=widths) for order in made]
        return made

    def _stacks(self, broadcast: Broadcast, ids: Ids) -> bool:
        """Whether clients are trained many at once: decided by model, update, task and cohort alone."""
        if self.vectorise is False or len(ids) < LEAST or self.transform is not None:
            return False
        fits = stackable(self.load(broadcast), self._trainer)
        if self.vectorise and not fits:
            raise ValueError(
                "vectorise=True, but this model or client update cannot be trained many clients at a time "
                "(small dense models with sgd or fedprox can); leave vectorise out"
            )
        return fits and (bool(self.task.separable) or len(np.unique(self.federation.sizes(ids))) == 1)

    def fulfil(
        self,
        broadcast: Broadcast,
        order: Order,
        keep: Callable[[int, Parameters], Parameters | None],
        room: Sequence[Parameters] | None = None,
    ) -> tuple[list[Report], list[Sum]]:
        """Train the clients of an order: with ``alpha`` sum their models, otherwise ``keep`` each of them.

        Floats are summed in the memory of ``room``, a model for each block, if it is given.
        """
        sums = [] if order.alpha is None else [Sum() for _ in order.blocks]
        scale = None if order.alone is None else Scale(order.alone, broadcast.parameters)
        for total, place in zip(sums, room or (), strict=False):
            total.values = {k: v.zero_() for k, v in place.items() if v.is_floating_point()}
        ends = np.cumsum(order.blocks).tolist()
        reports: list[Report] = []
        for stack in self._trained(broadcast, order):
            start = len(reports)
            reports += stack.reports
            if order.alpha is None:
                for i in range(start, len(reports)):
                    kept = keep(i, {name: value[i - start] for name, value in stack.parameters.items()})
                    reports[i] = dataclasses.replace(reports[i], parameters=kept)
                continue
            for total, size, end in zip(sums, order.blocks, ends, strict=True):
                low, high = max(start, end - size), min(len(reports), end)
                if low < high:
                    rows = slice(low - start, high - start)
                    total.add_stack(order.alpha[low:high], {n: v[rows] for n, v in stack.parameters.items()}, scale)
        return reports, sums

    def _trained(self, broadcast: Broadcast, order: Order) -> Iterator[Stack]:
        """The clients' models in order; they are valid until the next ones are made."""
        if not order.widths:
            for id, state in zip(order.ids, order.states, strict=True):
                report = self.train(broadcast, id, order.round, state, order.wanted)
                assert report.parameters is not None
                yield Stack(
                    [dataclasses.replace(report, parameters=None)],
                    {name: value.detach()[None] for name, value in report.parameters.items()},
                )
            return
        method = self._trainer
        assert isinstance(method, sgd)
        draws = [Draws(self.seed, order.round, id) for id in order.ids]
        if isinstance(self.federation, Pooled):  # its clients lie side by side already
            data, offsets = self.federation.data, self.federation.offsets
            parts = [range(int(offsets[id]), int(offsets[id + 1])) for id in order.ids]
        else:
            each = [self.federation.client(id) for id in order.ids]
            data = Examples(torch.cat([d.x for d in each]), torch.cat([d.y for d in each]))
            ends = np.cumsum([len(d) for d in each]).tolist()
            parts = [range(end - len(d), end) for end, d in zip(ends, each, strict=True)]
        start = 0
        for stack in update_many(method, self, broadcast, data, parts, draws, order.wanted, order.widths):
            part = slice(start, start + len(stack.reports))
            stack = self._uploaded(broadcast, stack, order.states[part], draws[part])
            yield dataclasses.replace(stack, reports=[self._counted(report, order.wanted) for report in stack.reports])
            start = part.stop

    @property
    def _trainer(self) -> Update:
        """The client update without its upload."""
        return self.method if self.compressed is None else self.compressed.of

    def _uploaded(
        self, broadcast: Broadcast, stack: Stack, states: Sequence[Mapping[str, Any]], draws: Sequence[Draws]
    ) -> Stack:
        """The models of a stack as a server reads them, written over what was trained."""
        if self.compressed is None:
            return stack
        reports = []
        for i, (report, state, drawn) in enumerate(zip(stack.reports, states, draws, strict=True)):
            model = {name: value[i] for name, value in stack.parameters.items()}
            trained = dataclasses.replace(report, parameters=model)
            found = self.compressed.read(broadcast, self.compressed.write(self, broadcast, trained, state, drawn))
            for name, value in (found.parameters or {}).items():
                model[name].copy_(value)
            reports.append(dataclasses.replace(found, parameters=None))
        return Stack(reports, stack.parameters)

    def _counted(self, report: Report, wanted: frozenset[str]) -> Report:
        """The report with the client's class counts, if they are wanted."""
        if "labels" not in wanted:
            return report
        counts = class_counts(self.federation.client(report.id), self.federation.classes)
        return dataclasses.replace(report, labels=counts)

    def evaluation_tasks(self, part: Part) -> list[int]:
        """Where each evaluation task starts."""
        return list(range(0, len(self.part(part)), CHUNK * EVALUATION_CHUNKS))

    def evaluate(self, broadcast: Broadcast, part: Part, start: int) -> tuple[float, Array | None]:
        """The summed loss and the correctness of one task's samples."""
        data = self.part(part)[slice(start, start + CHUNK * EVALUATION_CHUNKS)]
        module = self.load(broadcast)
        losses: list[float] = []
        correct: list[float] = []
        records: list[Array] = []
        for output, target in self.outputs(module, data):
            losses.append(self.task.per_sample(float(self.task.loss(output, target)), len(target)) * len(target))
            if self.task.correct is not None:
                correct += self.task.correct(output, target).tolist()
            if self.task.scores:
                records.append(self.task.record(output, target).numpy(force=True))
        found = None if self.task.correct is None else np.array(correct)
        if records:
            every = np.concatenate(records)
            found = np.column_stack([np.full(len(every), np.nan) if found is None else found, every])
        return math.fsum(losses), found

    def part(self, part: Part) -> Examples:
        data = self.federation.test if part == "test" else self.federation.validation
        if data is None:
            raise ValueError(
                "this federation has no validation part; build it with validation=0.1 or use signal='test'"
            )
        return data


def _spans(cut: list[range], width: int) -> list[list[range]]:
    """Neighbouring blocks of about ``width`` clients together; smaller ones at the end, so that workers end together.

    >>> [sum(map(len, span)) for span in _spans(blocks(1000), 128)]
    [124, 124, 124, 124, 124, 124, 62, 62, 62, 70]
    """
    found, most = [], max(1, width // len(cut[0]))
    left = cut
    while left:
        count = most if len(left) > 3 * most else max(1, most // 2)
        if len(left) < 2 * count:  # too few for two more
            count = len(left)
        found.append(left[:count])
        left = left[count:]
    return found
