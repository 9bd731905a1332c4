"""A server that does not wait, on the virtual clock: events ordered by (time, client), and a round for each version.

Clients in training are known by the version that they were sent and by the time at which they end. Their updates are
computed when they arrive, from the version that they were sent, so nothing but these versions has to be kept or saved:
a server that is resumed computes the same updates. Combining what has arrived is a round as any other
(`fedalpha.round.protocol`), whose cohort is who has delivered.

At one instant all arrivals come before clients are sent out. So with K = concurrency = cohort and equal speeds every
version has the cohort of the synchronous round.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedalpha.clock import Timeline
from fedalpha.clock.timeline import Among
from fedalpha.rng import generator
from fedalpha.round.answers import Answers
from fedalpha.round.choosing import choose
from fedalpha.round.driver import Engine, Evaluation, Part, play, tell_refusals
from fedalpha.round.gate import Gate, Refusal
from fedalpha.round.orders import AskLosses, Heard, Ids, Sample, Train
from fedalpha.round.state import Algorithm, Outcome, ServerState
from fedalpha.round.timed import awake
from fedalpha.strategies import Array, State

At = Callable[[int], Engine]
"""The engine whose clients work in a version (faults happen in versions)."""


@dataclass(frozen=True)
class Flight:
    """A client in training: the version it was sent, when it ends, why it then delivers nothing (None: it delivers).

    ``before`` is its loss of that version, if the selection has asked for it.
    """

    version: int
    end: float
    lost: str | None = None
    before: float | None = None


def begin() -> State:
    """The clock of a server that does not wait, before its first version."""
    return {"time": 0.0, "flights": {}, "versions": {}}


def play_buffered(algorithm: Algorithm, state: ServerState, at: At, timeline: Timeline) -> Outcome:
    """Make the next version: let clients arrive until the buffer is full, and play a round with them."""
    desk = Desk(algorithm, state, at, timeline)
    desk.collect()
    return desk.combine()


class Desk:
    """The server's desk while it makes one version."""

    def __init__(self, algorithm: Algorithm, state: ServerState, at: At, timeline: Timeline) -> None:
        self.algorithm, self.state, self.at, self.timeline = algorithm, state, at, timeline
        self.version = state.round
        self.server = timeline.pace.server
        self.time = float(state.clock["time"])
        self.flights = {int(id): Flight(**flight) for id, flight in state.clock["flights"].items()}
        self.select: State = state.select
        self.buffer: dict[int, Flight] = {}
        """client → the training that it has delivered"""
        self.lost: dict[int, Flight] = {}
        """client → the training from which nothing came; such a client is not sent out again for this version"""
        self.gate = Gate(algorithm.admission, state.broadcast, timeline.seed, self.version)
        self._drawn = 0
        self._asked = 0
        self._reached: set[int] = set()

    # Events

    def collect(self) -> None:
        """Let time pass until the buffer is full, or until nobody is left to wait for."""
        size = self.server.size(self.version)
        while True:
            self._land(size)
            if len(self.buffer) == size:
                return
            self._send()
            ends = [flight.end for flight in self.flights.values()]
            if len(self.flights) < self.server.places(self.version):
                ends.append(self.timeline.next_on(self.time, self._busy))
            then = min(ends, default=math.inf)
            if math.isinf(then):
                if not self.buffer and not self.lost:
                    awake(self.timeline, self.time)
                return
            self.time = max(self.time, then)

    @property
    def _busy(self) -> set[int]:
        """The clients that cannot be sent out: in training, in the buffer, or lost for this version."""
        return self.flights.keys() | self.buffer.keys() | self.lost.keys() | set(self._refused)

    @property
    def _refused(self) -> list[int]:
        return [refusal.client for refusal in self.gate.refusals]

    def _land(self, size: int) -> None:
        """Take what has arrived by now, in the order of (time, client), until the buffer is full."""
        for id, flight in sorted(self.flights.items(), key=lambda item: (item[1].end, item[0])):
            if flight.end > self.time or len(self.buffer) == size:
                return
            del self.flights[id]
            (self.buffer if flight.lost is None else self.lost)[id] = flight

    def _send(self) -> None:
        """Send the current version to clients of the selection until all places are taken, or nobody is left."""
        while (free := self.server.places(self.version) - len(self.flights)) > 0:
            present, busy = self.timeline.present(self.time), self._busy
            population: Any = self.timeline.population
            if busy or present is not None:
                ids = population.named(np.arange(population.clients)) if present is None else present
                idle = ids[~np.isin(ids, list(busy))]
                if not len(idle):
                    return
                population = Among(population, idle)
            ids, losses = self._chosen(population)
            if len(ids) > free:
                rng = generator(self.timeline.seed, "places", self.version, self._drawn)
                ids = np.sort(rng.choice(ids, size=free, replace=False))
            if not len(ids):
                return
            self._reached |= set(ids.tolist())
            for id, job in self.timeline.jobs(self.time, self.version, ids).items():
                self.flights[id] = Flight(self.version, job.end, job.lost, losses.get(id))

    def _chosen(self, population: Any) -> tuple[Ids, Mapping[int, float]]:
        """A cohort of the selection, without clients that were refused, and the losses that were asked for."""
        heard, drawn = Heard(), self._drawn
        self._drawn += 1
        while True:
            gate = Gate(self.algorithm.admission, self.state.broadcast, self.timeline.seed, self.version)
            losses = Answers(gate, heard, self.version)
            chosen = choose(
                self.algorithm.select,
                self.select,
                population,
                lambda: generator(self.timeline.seed, "cohort", self.version, drawn),
                losses,
            )
            if not isinstance(chosen, AskLosses):
                break
            found = self.at(self.version).losses(self.state.broadcast, chosen.ids, chosen.sample)
            heard = heard.and_losses(chosen, found)
        ids, self.select = chosen
        self.gate.refusals += gate.refusals
        self._asked += losses.count
        self._reached |= losses.clients
        ids = gate.present(ids)
        return ids, losses.whole(ids)

    # The round of those who have arrived

    def combine(self) -> Outcome:
        """The outcome of a round with the clients of the buffer, and the clock after it."""
        arrived = self.buffer or self.lost
        stale = {id: self.version - flight.version for id, flight in arrived.items()}
        sent = {id: self._sent(flight.version) for id, flight in arrived.items() if flight.version != self.version}
        known = {id: flight.before for id, flight in sorted(arrived.items()) if flight.before is not None}
        heard = Heard(arrived=stale, sent=sent, rebase=self.server.rebases)
        if known:
            losses = np.array(list(known.values()), dtype=np.float64)
            heard = heard.and_losses(AskLosses(np.array(list(known), dtype=np.int64)), losses)
        state = dataclasses.replace(self.state, select=self.select)
        engine = _Arrived(self.at, arrived, sent)
        outcome = play(
            self.algorithm, state, engine, self.timeline.population, self.timeline.seed, heard, self._delivered
        )
        earlier = [
            Refusal(id, flight.lost or "", planned=True) for id, flight in sorted(self.lost.items()) if self.buffer
        ]
        earlier = [*self.gate.refusals, *earlier]
        tell_refusals(outcome.state.round, earlier)
        return dataclasses.replace(
            outcome,
            state=dataclasses.replace(outcome.state, clock=self._clock()),
            refusals=[*earlier, *outcome.refusals],
            bytes_down=len(self._reached) * self.state.broadcast.nbytes,
            bytes_up=outcome.bytes_up + 8 * (self._asked - len(known)),
        )

    def _delivered(self, train: Train) -> tuple[Train, Mapping[int, str]]:
        """The whole order; if the buffer is empty, nobody of those who were lost."""
        if self.buffer:
            return train, {}
        nobody = dataclasses.replace(train, ids=train.ids[:0], alpha=None)
        return nobody, {id: flight.lost or "" for id, flight in self.lost.items()}

    def _sent(self, version: int) -> Any:
        """The broadcast of a version that clients still train from."""
        if version == self.version:
            return self.state.broadcast
        kept = self.state.clock["versions"][version]
        return dataclasses.replace(self.state.broadcast, parameters=kept["parameters"], extras=kept["extras"])

    def _clock(self) -> State:
        versions = {}
        for version in sorted({flight.version for flight in self.flights.values()}):
            sent = self._sent(version)
            versions[version] = {"parameters": sent.parameters, "extras": sent.extras}
        flights = {id: vars(flight) for id, flight in sorted(self.flights.items())}
        return {"time": self.time, "flights": flights, "versions": versions}


class _Arrived:
    """An engine for clients that were sent different versions: each works on its own."""

    def __init__(self, at: At, arrived: Mapping[int, Flight], sent: Mapping[int, Any]) -> None:
        self._at, self._arrived, self._sent = at, arrived, sent

    def losses(self, broadcast: Any, ids: Ids, sample: Sample | None = None) -> Array:
        found = np.empty(len(ids))
        for version, mine in self._versions(ids):
            found[mine] = self._at(version).losses(self._model(broadcast, ids[mine]), ids[mine], sample)
        return found

    def update(self, broadcast: Any, order: Train) -> Any:
        parts = list(self._versions(order.ids))
        if len(parts) == 1 and not self._sent:  # all are of the current version: models may be summed on the way
            return self._at(parts[0][0]).update(broadcast, order)
        items: list[Any] = []
        reports: Any = None
        for version, mine in parts:
            job = dataclasses.replace(order, round=version, ids=order.ids[mine], alpha=None)
            reports = self._at(version).update(self._model(broadcast, job.ids), job)
            items += reports.items
        return reports.only(sorted(items, key=lambda report: int(report.id)))

    def evaluate(self, broadcast: Any, part: Part) -> Evaluation:
        raise NotImplementedError("a server that does not wait measures no losses of its own in a round")

    def close(self) -> None:
        """The engine is closed by who has started it."""

    def _versions(self, ids: Ids) -> list[tuple[int, Any]]:
        """Each version with the places of its clients; one without clients if there are none."""
        versions = np.array([self._arrived[id].version for id in ids.tolist()], dtype=np.int64)
        if not len(ids):
            return [(max(flight.version for flight in self._arrived.values()), np.zeros(0, dtype=bool))]
        return [(int(version), versions == version) for version in np.unique(versions)]

    def _model(self, broadcast: Any, ids: Ids) -> Any:
        return self._sent.get(int(ids[0]), broadcast) if len(ids) else broadcast
