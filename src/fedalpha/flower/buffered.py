"""A live buffered server: clients train from the version that they were sent, and updates are used as they arrive.

The server needs the loop of `FedAlpha.start`, which pushes messages and pulls replies. The order of arrival is that of
real time, so two runs differ. The updates that have arrived are combined by an ordinary round. Only the running
server app knows the clients in training; after a restart it sends them the current version.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, field
from logging import INFO
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid
from flwr.supercore import log

from fedalpha.clock import Server
from fedalpha.flower.dispatch import Dispatch, Sending
from fedalpha.flower.exchange import push
from fedalpha.flower.names import COMMITTED
from fedalpha.flower.plug_points import Connected
from fedalpha.flower.replies import Rejected
from fedalpha.flower.reports import Report, Wanted
from fedalpha.flower.rounds import Round
from fedalpha.round import AskLosses, Learn, Measure, Order, Outcome, Train
from fedalpha.round.version import Send, Version
from fedalpha.strategies import KNOWN_BEFORE_TRAINING

_PAUSES = 0.02, 1.0
"""The shortest and the longest pause between two checks for replies, in seconds."""


@dataclass
class Flight:
    """A client in training."""

    version: int
    node: int
    message: str
    broadcast: Any
    wanted: Wanted
    number: int
    """the round under which a node keeps its state"""
    before: float | None = None
    started: float = field(default_factory=time.monotonic)
    reply: Message | None = None


class Buffered:
    """The clients in training of a run, from version to version."""

    def __init__(self, server: Server, dispatch: Dispatch, seed: int, on_node: bool) -> None:
        self.server, self.dispatch, self.seed, self.on_node = server, dispatch, seed, on_node
        self.flights: dict[int, Flight] = {}
        self._landed: list[int] = []
        """clients whose replies are here, in the order of arrival"""

    def play(self, now: Round, sending: Sending, least: int, seconds: float) -> Outcome:
        """Make the next version: wait for updates until the buffer is full, then play a round with them.

        The server does not wait longer than ``seconds`` for a client. The outcome is also stored in ``now``.
        """
        following = _NextVersion(self, now, sending, least, seconds)
        following.collect()
        return following.combine()

    def pull(self, grid: Grid) -> bool:
        """Take the replies that have arrived, ordered by client; returns whether there are any."""
        waiting = {flight.message: id for id, flight in self.flights.items() if flight.reply is None}
        found = {}
        for reply in grid.pull_messages(list(waiting)) if waiting else ():
            id = waiting.get(reply.metadata.reply_to_message_id)
            if id is not None:
                found[id] = reply
        for id in sorted(found):
            self.flights[id].reply = found[id]
            self._landed.append(id)
        return bool(found)

    def landed(self) -> tuple[int, Flight] | None:
        """The next client whose reply has arrived."""
        if not self._landed:
            return None
        id = self._landed.pop(0)
        return id, self.flights.pop(id)


class _NextVersion:
    """The next version while it is made: collects updates, then combines them."""

    def __init__(self, owner: Buffered, now: Round, sending: Sending, least: int, seconds: float) -> None:
        self.owner, self.now, self.sending, self.least, self.seconds = owner, now, sending, least, seconds
        self.version = Version(now.rules.algorithm, now.state, owner.server, owner.seed, asks=True)
        self.buffer: dict[int, tuple[Flight, Report]] = {}

    def collect(self) -> None:
        """Wait until the buffer is full, or until no client is in training."""
        pause = _PAUSES[0]
        while True:
            came = self.owner.pull(self.sending.grid)
            self._land()
            if len(self.buffer) == self.version.size:
                return
            patient = not self.owner.flights  # a new node that is silent must not hold up those that deliver
            connected = self.owner.dispatch.connected(self.sending.grid, self.least, self.now.number, patient)
            self.now.population = connected
            self._give_up(connected)
            self._send(connected)
            if not self.owner.flights:
                return
            pause = _PAUSES[0] if came else min(1.3 * pause, _PAUSES[1])
            time.sleep(pause)

    def _land(self) -> None:
        """Read the replies in the order of arrival, until the buffer is full."""
        while len(self.buffer) < self.version.size and (landed := self.owner.landed()) is not None:
            id, flight = landed
            try:
                report = flight.wanted.read(id, flight.reply)
            except Rejected as reason:
                self.version.lose(id, str(reason))
                continue
            assert flight.reply is not None
            if COMMITTED in report.state:
                report = dataclasses.replace(report, state={COMMITTED: flight.number})
            self.now.note(report, flight.reply)
            self.buffer[id] = dataclasses.replace(flight, reply=None), report

    def _give_up(self, connected: Connected) -> None:
        """Free the places of clients whose node has disconnected, and of those that take too long."""
        clients, now = self.owner.dispatch.clients, time.monotonic()
        here = {clients.nodes[id]: id for id in connected.ids.tolist()}
        for id, flight in list(self.owner.flights.items()):
            if flight.reply is not None:
                continue
            reason = "" if flight.node in here else "its node is gone"
            if now - flight.started > self.seconds:
                reason = f"no reply within {self.seconds:g} s"
            if reason:
                del self.owner.flights[id]
                self.version.lose(id, reason)

    def _send(self, connected: Connected) -> None:
        """Send the current version to clients until all places are taken, or no client can be sent it."""
        version, flights = self.version, self.owner.flights
        while order := version.order(connected, [*flights, *self.buffer], version.places - len(flights)):
            if isinstance(order, AskLosses):
                version.hear(order, *self._ask(order))
            else:
                self._push(order)

    def _ask(self, order: AskLosses) -> tuple[Any, dict[int, str]]:
        """Losses of the current version."""
        found, problems, sizes = self.owner.dispatch.losses(self.now, order, self.sending)
        self.owner.dispatch.clients.sizes.update(sizes)
        self.now.know(self.owner.dispatch.clients.sizes)
        return found, problems

    def _push(self, order: Send) -> None:
        """Send training messages."""
        algorithm, state, ids = self.version.algorithm, self.now.state, order.ids
        needs = algorithm.weigh.requires
        wanted = algorithm.combine.wants | (frozenset() if needs <= KNOWN_BEFORE_TRAINING else needs)
        sent = dataclasses.replace(self.now, order=Train(self.version.number, ids, None, state.clients, wanted))
        messages = self.owner.dispatch.training(sent, self.sending, self.owner.on_node)
        pushed = push(self.sending.grid, list(messages.values()))
        by_node = {node: message for message, node in pushed.items()}
        reading = self.owner.dispatch.wanted(sent)
        for id in ids.tolist():
            node = messages[id].metadata.dst_node_id if id in messages else -1
            if node not in by_node:
                self.version.lose(id, "its message could not be sent")
                continue
            self.owner.flights[id] = Flight(
                self.version.number, node, by_node[node], state.broadcast, reading, sent.number, order.before.get(id)
            )
        log(
            INFO,
            "fedalpha: version %d: %d clients train, %d of them new",
            self.version.number,
            len(self.owner.flights),
            len(ids),
        )

    def combine(self) -> Outcome:
        """The outcome of a round with the clients of the buffer."""
        now, version = self.now, self.version
        if not self.buffer:
            return version.empty(now.population)
        flights = {id: flight for id, (flight, _) in sorted(self.buffer.items())}
        sent = {id: flight.broadcast for id, flight in flights.items() if flight.version != version.number}
        now.state, now.heard = version.begun, version.heard(flights, sent)
        step: Order | Outcome = now.advance()
        while not isinstance(step, Outcome):
            if isinstance(step, Measure | Learn | AskLosses):
                raise RuntimeError(f"a buffered server cannot carry out {type(step).__name__}")
            items = [now.rules.form.report(self.buffer[id][1]) for id in step.ids.tolist()]
            now.heard = now.heard.and_reports(now.rules.form.reports(items, None))
            step = now.advance()
        return version.finished(step)
