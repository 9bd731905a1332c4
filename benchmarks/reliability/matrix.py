"""The fault matrix: every fault against every strategy, counted round by round."""

from __future__ import annotations

import dataclasses
import logging
import math
import multiprocessing
import re
from collections.abc import Iterator
from typing import Any

import torch

from fedalpha.combine import COMBINES, Reports
from fedalpha.data import federation
from fedalpha.data.federations import Federation
from fedalpha.defence.faults import FAULTS, Fault, Faulty, Scene
from fedalpha.engine.backends.embedded import Embedded
from fedalpha.fast.threads import single_thread
from fedalpha.round import Algorithm, Engine, Evaluation, Ids, Outcome, Part, Sample, ServerState, Train, play
from fedalpha.runs.evaluate import Evaluate
from fedalpha.runs.experiment import Experiment
from fedalpha.strategies import STRATEGIES, Array, Strategy
from fedalpha.task import Task
from fedalpha.update import Broadcast, sgd

FAULT_TEXTS = (
    "nan(p=0.4)",
    "nan(p=0.4, value=inf, where=loss)",
    "nan(p=0.4, where=model)",
    "lie(loss=-1.0, p=0.4)",
    "lie(loss=1000000000.0, p=0.4)",
    "lie(loss=0.0, p=0.4)",
    "malformed(kind=shape, p=0.4)",
    "malformed(kind=broadcast, p=0.4)",
    "malformed(kind=dtype, p=0.4)",
    "malformed(kind=missing, p=0.4)",
    "malformed(kind=extra, p=0.4)",
    "drop(p=0.4)",
    "straggler(p=0.4, delay=60)",
    "replay(p=0.4)",
    "free_rider(p=0.4)",
    "scale(factor=1e+30, p=0.4)",
    "sign_flip(factor=1000.0, p=0.4)",
    "gaussian(sigma=1000.0, p=0.4)",
    "alie(clients=0.3)",
    "ipm(epsilon=100.0, clients=0.3)",
    "mimic(clients=0.3)",
)
TIGHT = ("cap(FedSoftWorse(T=0.2), 0.1)",)
"""A cap that is sometimes infeasible for the clients that are left."""
MUST_BE_REFUSED = ("nan", "malformed", "drop", "straggler")
CLIENTS, NORM, DEADLINE = 12, 1.0, 30.0


class Watched:
    """An engine with a fault. It records the reports that arrived and the number of faults."""

    def __init__(self, engine: Engine, fault: Fault, seed: int, round: int, clients: int) -> None:
        self.inner = Faulty(engine, fault, seed, round, clients)
        self.hit: set[int] = set()
        self.arrived = Reports([])

    def losses(self, broadcast: Broadcast, ids: Ids, sample: Sample | None = None) -> Array:
        true = self.inner.engine.losses(broadcast, ids, sample)
        found = self.inner.fault.losses(self._scene(broadcast), ids, true)
        self.hit |= set(ids[found != true].tolist())
        return found

    def update(self, broadcast: Broadcast, job: Train) -> Reports:
        self.hit |= set(self.inner.fault.acting(self._scene(broadcast), job.ids.tolist()))
        self.arrived = self.inner.update(broadcast, job)
        return self.arrived

    def _scene(self, broadcast: Broadcast) -> Scene:
        return Scene(self.inner.seed, self.inner.round, self.inner.clients, broadcast)

    def evaluate(self, broadcast: Broadcast, part: Part) -> Evaluation:
        return self.inner.evaluate(broadcast, part)

    def close(self) -> None:
        pass


def fault_matrix(
    least: int = 1000, texts: tuple[str, ...] = FAULT_TEXTS, workers: int | None = None
) -> Iterator[dict[str, Any]]:
    """At least ``least`` faults per strategy, on digits with updates clipped to the norm 1.

    One row per strategy: faults injected, refusals, crashes, non-finite models, displacements over 2·B·C.
    """
    named = [entry.examples[0] for entry in STRATEGIES]
    rules = dict.fromkeys(str(STRATEGIES.parse(text)) for text in (*named, *TIGHT))
    jobs = [(rule, least, texts) for rule in rules]
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield from pool.imap(_row, jobs)


def _row(job: tuple[str, int, tuple[str, ...]]) -> dict[str, Any]:
    rule, least, texts = job
    data = federation("digits", partition="dirichlet(a=1)", clients=CLIENTS, seed=0)
    logger = logging.getLogger("fedalpha.round.driver")
    logger.addFilter(_count)
    try:
        with single_thread():
            return _strategy_row(STRATEGIES.parse(rule), data, least, texts)
    finally:
        logger.removeFilter(_count)


class _Count(logging.Filter):
    """Counts refusals in the log, and does not print them."""

    def __init__(self) -> None:
        super().__init__()
        self.refusals = 0

    def filter(self, record: logging.LogRecord) -> bool:
        named = re.search(r"clients? (.*?) refused:", record.getMessage())
        self.refusals += 0 if named is None else len(named[1].split(", "))  # clients with one reason share a line
        return False


_count = _Count()


def _strategy_row(strategy: Strategy, data: Federation, least: int, texts: tuple[str, ...]) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(
        ("injected", "refused", "logged", "unrefused", "crashes", "non_finite", "over_bound", "rounds", "kept"), 0
    )
    row = {"strategy": str(strategy), **row, "largest_share_of_bound": 0.0}
    simplex = strategy.traits.simplex
    rule = COMBINES.parse(f"clip(mean, C={NORM})")
    engine = Embedded(data, Task(), sgd(batch=16), 0, workers=1)
    algorithm = Algorithm(update=sgd(batch=16), weigh=strategy, combine=rule)
    algorithm = dataclasses.replace(algorithm, admission=dataclasses.replace(algorithm.admission, deadline=DEADLINE))
    states = {text: Experiment(data, algorithm, "softmax", 0, 0, Evaluate(signal="test")).start() for text in texts}
    while row["injected"] < least and not row["crashes"]:
        for text in texts:
            fault, state = FAULTS.parse(text), states[text]
            watched = Watched(engine, fault, 0, state.round, data.clients)
            before = _count.refusals
            try:
                outcome = play(algorithm, dataclasses.replace(state, accuracy=0.5), watched, data, 0)
            except Exception as error:
                row["crashes"] += 1
                row.setdefault("errors", []).append(f"{text}: {type(error).__name__}: {error}")
                continue
            following, played = outcome.state, outcome
            refused = {r.client for r in played.refusals}
            row["rounds"] += 1
            row["injected"] += len(watched.hit)
            row["refused"] += len({(r.client, r.reason) for r in played.refusals})
            row["logged"] += _count.refusals - before
            row["kept"] += played.kept is not None
            if fault.text_name in MUST_BE_REFUSED or text.startswith("lie(loss=-"):
                row["unrefused"] += len(watched.hit - refused)
            finite = all(torch.isfinite(v).all() for v in following.broadcast.parameters.values())
            row["non_finite"] += not finite
            if simplex and played.kept is None:
                share = _share_of_bound(algorithm, state, following, played, watched)
                row["over_bound"] += share > 1
                row["largest_share_of_bound"] = max(row["largest_share_of_bound"], share)
            states[text] = following
    return row


def _share_of_bound(
    algorithm: Algorithm, state: ServerState, following: ServerState, played: Outcome, watched: Watched
) -> float:
    """How far the faulty clients moved the model from where the others would have, over 2·B·C."""
    ids = played.cohort.ids
    faulty = [i in watched.hit for i in ids.tolist()]
    mass = math.fsum(a for a, bad in zip(played.alpha.tolist(), faulty, strict=True) if bad)
    if mass == 0:
        return 0.0
    weights = {i: a for i, a in zip(ids.tolist(), played.alpha.tolist(), strict=True) if a != 0}
    once = {r.id: r for r in watched.arrived.items if r.id in weights and r.id not in watched.hit}
    honest = Reports([once[i] for i in sorted(once)])
    reference = state.broadcast
    if honest.items:
        here = played.alpha[[i in once for i in ids.tolist()]]
        reference, _ = algorithm.combine.combine(state.combine, reference, honest, here / here.sum(), True)
    squares = [
        float(((v.double() - reference.parameters[k].double()) ** 2).sum())
        for k, v in following.broadcast.parameters.items()
    ]
    return math.sqrt(math.fsum(squares)) / (2 * mass * NORM)
