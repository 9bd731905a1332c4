"""What one process computes for the clients given to it: losses, updates, evaluations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
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
from fedalpha.update import Broadcast, Report, Site, Update
from fedalpha.update.base import CHUNK

EVALUATION_CHUNKS = 4
"""Chunks per evaluation task: small enough to share among workers, fixed so that bytes do not vary."""


class ClientSite(Site):
    """A `Site` that knows the federation and the client update."""

    def __init__(self, federation: Federation, task: Task, update: Update, seed: int, device: str) -> None:
        super().__init__(task, device)
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
            raise

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
        for place, (id, state) in enumerate(zip(ids, states, strict=True)):
            report = self.train(broadcast, id, round, state, wanted)
            assert report.parameters is not None
            kept = None
            if total is not None and alpha is not None:
                total.add(alpha[place], report.parameters)
            else:
                kept = keep(place, report.parameters)
            reports.append(Report(id, kept, report.losses, report.steps, report.samples, report.extras, report.state))
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
