"""An engine whose clients send their updates through a secure sum: the same protocol as on a live federation.

The clients are simulated one after the other in this process. The server part sees what it would see: messages.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Mapping

import numpy as np
import torch

from fedalpha.combine import Reports, Sum
from fedalpha.models import Parameters
from fedalpha.round import Algorithm, Engine, Evaluation, Gate, Nothing, Part, Sample, Train
from fedalpha.round.orders import Ids
from fedalpha.secure.rounds import Costs, Failed, Rehearsal, Total, rehearsing, session_of, summed
from fedalpha.secure.server import Server, Unusable
from fedalpha.secure.vectors import Vector
from fedalpha.strategies import Array
from fedalpha.update import Broadcast, Report

log = logging.getLogger(__name__)


class Veiled:
    """The engine of one round, behind the secure sum of an algorithm; ``costs`` and ``told`` describe its session."""

    def __init__(self, engine: Engine, algorithm: Algorithm, seed: int, round: int) -> None:
        assert algorithm.secure is not None
        self.engine, self.algorithm, self.secure = engine, algorithm, algorithm.secure
        self.seed, self.round = seed, round
        self.costs = Costs()
        self.told: dict[str, float] | None = None

    def losses(self, broadcast: Broadcast, ids: Ids, sample: Sample | None = None) -> Array:
        return self.engine.losses(broadcast, ids, sample)

    def evaluate(self, broadcast: Broadcast, part: Part) -> Evaluation:
        return self.engine.evaluate(broadcast, part)

    def close(self) -> None:
        self.engine.close()

    def update(self, broadcast: Broadcast, order: Train) -> Reports | Nothing:
        """Train the clients, then sum their updates through the protocol."""
        assert order.alpha is not None
        alpha = dict(zip(order.ids.tolist(), order.alpha.tolist(), strict=True))
        weights = self.secure.weights(self.algorithm, alpha)
        if reason := self.secure.too_few(weights):
            return Nothing(reason)
        found, problems = self._trained(broadcast, order)
        values = [value for value in broadcast.parameters.values() if value.is_floating_point()]
        size = sum(value.numel() for value in values)
        run = f"simulation {self.seed}"
        session = session_of(self.secure, self.algorithm, weights, size, run, self.round)
        losses = self._losses(broadcast, sorted(found))

        def vector(id: int) -> tuple[Vector, float | None]:
            if id not in found:
                raise Unusable(problems.get(id, "did not deliver"))
            return difference(found[id], broadcast), losses.get(id)

        rehearsal = Rehearsal(rehearsing(session, weights), vector)
        server = Server(session, weights)
        try:
            total = summed(server, rehearsal.ask, self.costs)
        except Failed as failure:
            return Nothing(str(failure), failure.problems)
        finally:
            self.costs.clients = rehearsal.costs.clients
        self.told = {
            "bytes_up": self.costs.up,
            "bytes_down": self.costs.down,
            "seconds": round(self.costs.clients + self.costs.server, 6),
            "error": total.sum.error,
        }
        for id, note in total.notes.items():
            log.warning("round %d: client %s: %s", self.round, id, note)
        return self._reports(broadcast, total, alpha, found)

    def _trained(self, broadcast: Broadcast, order: Train) -> tuple[dict[int, Report], dict[int, str]]:
        """The reports that pass the clients' own checks, by id; and why the others do not."""
        reports = self.engine.update(broadcast, dataclasses.replace(order, alpha=None))
        gate = Gate(self.algorithm.admission, broadcast, self.seed, self.round)
        found: dict[int, Report] = {}
        problems: dict[int, str] = {}
        asked = frozenset(order.ids.tolist())
        for report in reports.items:
            if reason := gate.fault(report, asked):
                problems[report.id] = reason
            else:
                found.setdefault(report.id, report)
        return found, problems

    def _losses(self, broadcast: Broadcast, ids: list[int]) -> Mapping[int, float]:
        """What each client measures for itself; the server part does not see it."""
        if not self.secure.blind or not ids:
            return {}
        return dict(zip(ids, self.engine.losses(broadcast, np.array(ids, dtype=np.int64)).tolist(), strict=True))

    def _reports(
        self, broadcast: Broadcast, total: Total, weights: Mapping[int, float], found: Mapping[int, Report]
    ) -> Reports:
        """The reports of the clients in the sum, without their models and losses, and Σ alpha_i·w_i."""
        mass = math.fsum(weights[id] for id in total.ids)
        values = added(broadcast, self.secure.shared_out(self.algorithm, total, weights), mass)
        items = [dataclasses.replace(found[id], parameters=None, losses={}) for id in total.ids]
        sums = Sum(values, max(weights[id] for id in total.ids))
        return Reports(items, sums, final=True, problems=total.problems, uploaded=self.costs.up)


def difference(report: Report, broadcast: Broadcast) -> Vector:
    """w_i − w_t, all floating tensors one after the other."""
    assert report.parameters is not None
    sent = broadcast.parameters
    moves = [report.parameters[k].double() - v.double() for k, v in sent.items() if v.is_floating_point()]
    flat: Vector = torch.cat([move.reshape(-1) for move in moves]).numpy()
    return flat


def added(broadcast: Broadcast, moves: Vector, mass: float) -> Parameters:
    """``mass``·w_t + moves in float64; integer buffers keep their value, because no client's may be seen."""
    found: Parameters = {}
    flat, start = torch.from_numpy(moves), 0
    for name, old in broadcast.parameters.items():
        if old.is_floating_point():
            part = flat[start : start + old.numel()].reshape(old.shape)
            found[name] = mass * old.double() + part
            start += old.numel()
        else:
            found[name] = old.clone()
    return found
