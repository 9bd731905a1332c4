"""A server that does not wait, on the virtual clock: events ordered by (time, client), and a round for each version.

Clients in training are known by the version that they were sent and by the time at which they end. Their updates are
computed when they arrive, from the version that they were sent, so nothing but these versions has to be kept or saved:
a server that is resumed computes the same updates. The updates that have arrived are combined by an ordinary round
(`fedalpha.round.protocol`), whose cohort is the clients that have delivered.

At one instant arrivals are handled before the model is sent to other clients. So with K = concurrency = cohort and
equal speeds every version has the cohort of the synchronous round.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedalpha.clock import Timeline
from fedalpha.clock.timeline import Among
from fedalpha.round.driver import Engine, Evaluation, Part, play, tell, tell_refusals
from fedalpha.round.orders import AskLosses, Ids, Sample, Train
from fedalpha.round.state import Algorithm, Outcome, ServerState
from fedalpha.round.timed import awake
from fedalpha.round.version import Version
from fedalpha.select import Population
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


def check(clock: State, round: int, clients: int) -> None:
    """Raise ValueError if a saved clock cannot be that of a server that does not wait, after ``round`` versions."""
    flights, versions = clock["flights"], clock["versions"]
    names = {field.name for field in dataclasses.fields(Flight)}
    for id, flight in flights.items():
        if type(id) is not int or not 0 <= id < clients or not isinstance(flight, Mapping) or flight.keys() != names:
            raise ValueError("its clients in training are not clients of this run")
        version, lost, before = flight["version"], flight["lost"], flight["before"]
        if type(version) is not int or not 0 <= version <= round or (version < round and version not in versions):
            raise ValueError("a client trains from a version that does not exist")
        if not finite(flight["end"]) or not isinstance(before, float | np.floating | None):
            raise ValueError("the time or the loss of a client in training is not a number")
        if not (lost is None or (isinstance(lost, str) and len(lost) <= 200)):
            raise ValueError("the reason why a client in training is lost is not a short text")
    if not all(type(version) is int for version in versions):
        raise ValueError("its versions are not numbered")
    if versions.keys() - {flight["version"] for flight in flights.values()}:
        raise ValueError("it keeps a version from which no client trains")


def finite(value: object) -> bool:
    """Whether a saved value is a time: a number ≥ 0 that float64 can hold.

    >>> finite(2.5), finite(float("inf")), finite(True), finite(10**400)
    (True, False, False, False)
    """
    number = isinstance(value, int | float | np.floating) and not isinstance(value, bool)
    return number and bool(0 <= value <= sys.float_info.max)  # type: ignore[operator]


def play_buffered(algorithm: Algorithm, state: ServerState, at: At, timeline: Timeline) -> Outcome:
    """Make the next version: let clients arrive until the buffer is full, and play a round with them."""
    following = _NextVersion(algorithm, state, at, timeline)
    following.collect()
    return following.combine()


class _NextVersion:
    """The next version while it is made: collects updates, then combines them."""

    def __init__(self, algorithm: Algorithm, state: ServerState, at: At, timeline: Timeline) -> None:
        self.state, self.at, self.timeline = state, at, timeline
        self.version = Version(algorithm, state, timeline.pace.server, timeline.seed)
        self.time = float(state.clock["time"])
        self.flights = {int(id): Flight(**flight) for id, flight in state.clock["flights"].items()}
        self.buffer: dict[int, Flight] = {}
        """client → the training that it has delivered"""

    # Events

    def collect(self) -> None:
        """Let time pass until the buffer is full, or until there is no client to wait for."""
        while True:
            self._land()
            if len(self.buffer) == self.version.size:
                return
            self._send()
            ends = [flight.end for flight in self.flights.values()]
            if len(self.flights) < self.version.places:
                ends.append(self.timeline.next_on(self.time, [*self._busy, *self.version.out]))
            then = min(ends, default=math.inf)
            if math.isinf(then):
                if not self.buffer and not self.version.out:
                    awake(self.timeline, self.time)
                return
            self.time = max(self.time, then)

    @property
    def _busy(self) -> set[int]:
        return self.flights.keys() | self.buffer.keys()

    def _land(self) -> None:
        """Take what has arrived by now, in the order of (time, client), until the buffer is full."""
        for id, flight in sorted(self.flights.items(), key=lambda item: (item[1].end, item[0])):
            if flight.end > self.time or len(self.buffer) == self.version.size:
                return
            del self.flights[id]
            if flight.lost is None:
                self.buffer[id] = flight
            else:
                self.version.lose(id, flight.lost, planned=True)

    def _send(self) -> None:
        """Send the current version to clients until all places are taken, or no client can be sent it."""
        population: Population = self.timeline.population
        if (present := self.timeline.present(self.time)) is not None:
            population = Among(population, present)
        version = self.version
        while order := version.order(population, self._busy, version.places - len(self.flights)):
            if isinstance(order, AskLosses):
                found = self.at(version.number).losses(self.state.broadcast, order.ids, order.sample)
                version.hear(order, found)
                continue
            for id, job in self.timeline.jobs(self.time, version.number, order.ids).items():
                self.flights[id] = Flight(version.number, job.end, job.lost, order.before.get(id))

    # The round of the clients that have delivered

    def combine(self) -> Outcome:
        """The outcome of a round with the clients of the buffer, and the clock after it."""
        version, population = self.version, self.timeline.population
        if self.buffer:
            sent = {
                id: self._sent(flight.version) for id, flight in self.buffer.items() if flight.version != version.number
            }
            engine = _Arrived(self.at, self.buffer, sent)
            heard = version.heard(self.buffer, sent)
            outcome = play(version.algorithm, version.begun, engine, population, self.timeline.seed, heard)
            tell_refusals(outcome.state.round, version.refusals)
            outcome = version.finished(outcome)
        else:
            outcome = version.empty(population)
            tell(outcome)
        return dataclasses.replace(outcome, state=dataclasses.replace(outcome.state, clock=self._clock()))

    def _sent(self, version: int) -> Any:
        """The broadcast of a version that clients still train from."""
        if version == self.version.number:
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
        """Nothing is closed here: whoever started the engine closes it."""

    def _versions(self, ids: Ids) -> list[tuple[int, Any]]:
        """Each version with the places of its clients; one without clients if there are none."""
        versions = np.array([self._arrived[id].version for id in ids.tolist()], dtype=np.int64)
        if not len(ids):
            return [(max(flight.version for flight in self._arrived.values()), np.zeros(0, dtype=bool))]
        return [(int(version), versions == version) for version in np.unique(versions)]

    def _model(self, broadcast: Any, ids: Ids) -> Any:
        return self._sent.get(int(ids[0]), broadcast) if len(ids) else broadcast
