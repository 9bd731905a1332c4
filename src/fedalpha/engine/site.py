"""What one process computes for the clients given to it: losses, updates, evaluations."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from fedalpha.combine import Sum
from fedalpha.data.federations import Examples, Federation
from fedalpha.engine.base import Part, Sample
from fedalpha.models import Parameters
from fedalpha.rng import Draws
from fedalpha.strategies import Array
from fedalpha.task import Task
from fedalpha.update import Broadcast, Report, Site, Update, sgd
from fedalpha.update.base import CHUNK
from fedalpha.update.vectorised import LEAST, stackable, update_many

EVALUATION_CHUNKS = 4
"""Chunks per evaluation task: small enough to share among workers, fixed so that bytes do not vary."""


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
        self.method = update
        self.seed = seed

    def losses(self, broadcast: Broadcast, ids: list[int], sample: Sample | None = None) -> list[float]:
        """F_i of the broadcast model for each of ``ids``."""
        module = self.load(broadcast)
        return [self.loss(module, self._sampled(id, sample)) for id in ids]

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
            return self.method.update(
                self, broadcast, self.federation.client(id), state, Draws(self.seed, round, id), wanted
            )
        except Exception as error:
            error.add_note(f"(in the update of client {id}, round {round})")
            if "more than 1 value per channel" in str(error):
                error.add_note("(a last batch of one sample: choose another batch size, or sgd(drop_last=true))")
            raise

    def reports(
        self, broadcast: Broadcast, ids: list[int], round: int, states: list[Mapping[str, Any]], wanted: frozenset[str]
    ) -> Iterator[Report]:
        """The updates of several clients, in order; a report's parameters are valid until the next one is made."""
        if self.stacks(broadcast, len(ids)):
            data = [self.federation.client(id) for id in ids]
            if self.task.separable or len({len(d) for d in data}) == 1:
                draws = [Draws(self.seed, round, id) for id in ids]
                assert isinstance(self.method, sgd)
                yield from update_many(self.method, self, broadcast, data, draws, wanted)
                return
        for id, state in zip(ids, states, strict=True):
            yield self.train(broadcast, id, round, state, wanted)

    def stacks(self, broadcast: Broadcast, clients: int) -> bool:
        """Whether so many clients are trained at once: decided by model, update and cohort alone."""
        if self.vectorise is False or clients < LEAST:
            return False
        fits = stackable(self.load(broadcast), self.method)
        if self.vectorise and not fits:
            raise ValueError(
                "vectorise=True, but this model or client update cannot be trained many clients at a time "
                "(small dense models with sgd or fedprox can); leave vectorise out"
            )
        return fits

    def train_block(
        self,
        broadcast: Broadcast,
        ids: list[int],
        round: int,
        states: list[Mapping[str, Any]],
        wanted: frozenset[str],
        alpha: list[float] | None,
        *,
        keep: Callable[[int, Parameters], Parameters | None],
    ) -> tuple[list[Report], Sum | None]:
        """Train a block of clients: with ``alpha`` sum their models, otherwise ``keep`` each of them."""
        total = Sum() if alpha is not None else None
        reports = []
        for place, report in enumerate(self.reports(broadcast, ids, round, states, wanted)):
            assert report.parameters is not None
            kept = None
            if total is not None and alpha is not None:
                total.add(alpha[place], report.parameters)
            else:
                kept = keep(place, report.parameters)
            reports.append(dataclasses.replace(report, parameters=kept))
        return reports, total

    def evaluation_tasks(self, part: Part) -> list[int]:
        """Where each evaluation task starts."""
        return list(range(0, len(self.part(part)), CHUNK * EVALUATION_CHUNKS))

    def evaluate(self, broadcast: Broadcast, part: Part, start: int) -> tuple[float, Array | None]:
        """The summed loss and the correctness of one task's samples."""
        data = self.part(part)[slice(start, start + CHUNK * EVALUATION_CHUNKS)]
        module = self.load(broadcast)
        losses: list[float] = []
        correct: list[float] = []
        for output, target in self.outputs(module, data):
            losses.append(self.task.per_sample(float(self.task.loss(output, target)), len(target)) * len(target))
            if self.task.correct is not None:
                correct += self.task.correct(output, target).tolist()
        return math.fsum(losses), None if self.task.correct is None else np.array(correct)

    def part(self, part: Part) -> Examples:
        data = self.federation.test if part == "test" else self.federation.validation
        if data is None:
            raise ValueError(
                "this federation has no validation part; build it with validation=0.1 or use signal='test'"
            )
        return data
