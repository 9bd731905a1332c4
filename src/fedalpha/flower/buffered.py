"""A live server that does not wait: clients train from the version that they were sent, and updates enter as they come.

It needs the loop of `FedAlpha.start`, where messages are pushed and replies are pulled. The order of arrival is that of
real time, so two runs differ. What happens with what has arrived is a round as any other. Clients in training are known
to the running server app only: one that is started again sends them the current version.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from logging import INFO
from typing import Any

import numpy as np
from flwr.app import Message
from flwr.serverapp import Grid
from flwr.supercore import log

from fedalpha.clock import Server
from fedalpha.clock.timeline import Among
from fedalpha.flower.dispatch import Dispatch, Sending
from fedalpha.flower.exchange import push
from fedalpha.flower.names import COMMITTED
from fedalpha.flower.plug_points import Connected
from fedalpha.flower.replies import Rejected
from fedalpha.flower.reports import Report, Wanted
from fedalpha.flower.rounds import Round
from fedalpha.rng import generator
from fedalpha.round import AskLosses, Gate, Heard, Ids, Learn, Measure, Order, Outcome, Refusal, Train
from fedalpha.round.answers import Answers
from fedalpha.round.choosing import choose
from fedalpha.strategies import KNOWN_BEFORE_TRAINING

_PAUSES = 0.02, 1.0
"""The shortest and the longest pause between two looks for replies, in seconds."""


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

        A client that takes longer than ``seconds`` is given up. The outcome is also noted in ``now``.
        """
        desk = _Desk(self, now, sending, least, seconds)
        desk.collect()
        return desk.combine()

    def pull(self, grid: Grid) -> bool:
        """Take the replies that are there; whether there are any. Those of one look are ordered by client."""
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
        """The next client whose reply is here."""
        if not self._landed:
            return None
        id = self._landed.pop(0)
        return id, self.flights.pop(id)


class _Desk:
    """The server's desk while it makes one version."""

    def __init__(self, owner: Buffered, now: Round, sending: Sending, least: int, seconds: float) -> None:
        self.owner, self.now, self.sending, self.least, self.seconds = owner, now, sending, least, seconds
        self.version = now.state.round
        self.buffer: dict[int, tuple[Flight, Report]] = {}
        self.lost: dict[int, str] = {}
        self.select = now.state.select
        self._drawn = self._sent = self._asked = 0

    @property
    def _algorithm(self) -> Any:
        return self.now.rules.algorithm

    def collect(self) -> None:
        """Wait until the buffer is full, or until nobody is left to wait for."""
        size, pause = self.owner.server.size(self.version), _PAUSES[0]
        while True:
            came = self.owner.pull(self.sending.grid)
            self._land(size)
            if len(self.buffer) == size:
                return
            connected = self.owner.dispatch.connected(self.sending.grid, self.least, self.now.number)
            self.now.population = connected
            self._give_up(connected)
            self._send(connected)
            if not self.owner.flights:
                return
            pause = _PAUSES[0] if came else min(1.3 * pause, _PAUSES[1])
            time.sleep(pause)

    def _land(self, size: int) -> None:
        """Read what has arrived, in its order, until the buffer is full."""
        while len(self.buffer) < size and (landed := self.owner.landed()) is not None:
            id, flight = landed
            try:
                report = flight.wanted.read(id, flight.reply)
            except Rejected as reason:
                self.lost[id] = str(reason)
                continue
            assert flight.reply is not None
            if COMMITTED in report.state:
                report = dataclasses.replace(report, state={COMMITTED: flight.number})
            self.now.note(report, flight.reply)
            self.buffer[id] = dataclasses.replace(flight, reply=None), report

    def _give_up(self, connected: Connected) -> None:
        """Free the places of clients whose node is gone, and of those that take too long."""
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
                self.lost[id] = reason

    def _send(self, connected: Connected) -> None:
        """Send the current version to clients of the selection until all places are taken, or nobody is left."""
        while (free := self.owner.server.places(self.version) - len(self.owner.flights)) > 0:
            busy = self.owner.flights.keys() | self.buffer.keys() | self.lost.keys()
            idle = connected.ids[~np.isin(connected.ids, list(busy))]
            if not len(idle):
                return
            ids, losses = self._chosen(connected if len(idle) == connected.clients else Among(connected, idle))
            if len(ids) > free:
                rng = generator(self.owner.seed, "places", self.version, self._drawn)
                ids = np.sort(rng.choice(ids, size=free, replace=False))
            if "before" in self._algorithm.weigh.requires and len(ids):
                ids, losses = self._before(ids, losses)
            if not len(ids):
                if self._drawn > connected.clients:
                    return
                continue
            self._push(ids, losses)

    def _chosen(self, population: Any) -> tuple[Ids, dict[int, float]]:
        """A cohort of the selection, without clients that were refused, and the losses that were asked for."""
        heard, drawn = Heard(), self._drawn
        self._drawn += 1
        while True:
            gate = Gate(self._algorithm.admission, self.now.state.broadcast, self.owner.seed, self.version)
            losses = Answers(gate, heard, self.version)
            chosen = choose(
                self._algorithm.select,
                self.select,
                population,
                lambda: generator(self.owner.seed, "cohort", self.version, drawn),
                losses,
            )
            if not isinstance(chosen, AskLosses):
                break
            heard = heard.and_losses(chosen, *self._ask(chosen))
        ids, self.select = chosen
        self.lost |= {refusal.client: refusal.reason for refusal in gate.refusals}
        ids = gate.present(ids)
        return ids, losses.whole(ids)

    def _ask(self, order: AskLosses) -> tuple[Any, dict[int, str]]:
        """Losses of the current version."""
        found, problems, sizes = self.owner.dispatch.losses(self.now, order, self.sending)
        self.owner.dispatch.clients.sizes.update(sizes)
        self.now.know(self.owner.dispatch.clients.sizes)
        self._asked += len(order.ids)
        return found, problems

    def _before(self, ids: Ids, known: Mapping[int, float]) -> tuple[Ids, dict[int, float]]:
        """The clients with a usable loss of the version that they are to be sent, and these losses."""
        missing = np.array([id for id in ids.tolist() if id not in known], dtype=np.int64)
        losses = dict(known)
        if len(missing):
            gate = Gate(self._algorithm.admission, self.now.state.broadcast, self.owner.seed, self.version)
            admitted = gate.losses(missing, *self._ask(AskLosses(missing)))
            losses |= dict(zip(missing.tolist(), admitted.tolist(), strict=True))
            self.lost |= {refusal.client: refusal.reason for refusal in gate.refusals}
            ids = gate.present(ids)
        return ids, losses

    def _push(self, ids: Ids, losses: Mapping[int, float]) -> None:
        """Send training messages."""
        algorithm, state = self._algorithm, self.now.state
        needs = algorithm.weigh.requires
        wanted = algorithm.combine.wants | (frozenset() if needs <= KNOWN_BEFORE_TRAINING else needs)
        sent = dataclasses.replace(self.now, order=Train(self.version, ids, None, state.clients, wanted))
        messages = self.owner.dispatch.training(sent, self.sending, self.owner.on_node)
        pushed = push(self.sending.grid, list(messages.values()))
        by_node = {node: message for message, node in pushed.items()}
        reading = self.owner.dispatch.wanted(sent)
        for id in ids.tolist():
            node = messages[id].metadata.dst_node_id if id in messages else -1
            if node not in by_node:
                self.lost[id] = "its message could not be sent"
                continue
            self._sent += 1
            self.owner.flights[id] = Flight(
                self.version, node, by_node[node], state.broadcast, reading, sent.number, losses.get(id)
            )
        log(
            INFO,
            "fedalpha: version %d: %d clients train, %d of them new",
            self.version,
            len(self.owner.flights),
            len(ids),
        )

    def combine(self) -> Outcome:
        """The outcome of a round with the clients of the buffer."""
        now, order = self.now, sorted(self.buffer)
        if not order:
            return self._keep()
        flights = {id: self.buffer[id][0] for id in order}
        heard = Heard(
            arrived={id: self.version - flight.version for id, flight in flights.items()},
            sent={id: f.broadcast for id, f in flights.items() if f.version != self.version},
            rebase=self.owner.server.rebases,
        )
        known = {id: flight.before for id, flight in flights.items() if flight.before is not None}
        if known:
            losses = np.array(list(known.values()), dtype=np.float64)
            heard = heard.and_losses(AskLosses(np.array(list(known), dtype=np.int64)), losses)
        now.state = dataclasses.replace(now.state, select=self.select)
        now.heard = heard
        step: Order | Outcome = now.advance()
        while not isinstance(step, Outcome):
            if isinstance(step, Measure | Learn | AskLosses):
                raise RuntimeError(f"a server that does not wait cannot carry out {type(step).__name__}")
            items = [now.rules.form.report(self.buffer[id][1]) for id in step.ids.tolist()]
            now.heard = now.heard.and_reports(now.rules.form.reports(items, None))
            step = now.advance()
        lost = [Refusal(id, reason) for id, reason in sorted(self.lost.items())]
        return dataclasses.replace(
            step,
            refusals=[*lost, *step.refusals],
            bytes_down=max(self._sent, self._asked) * now.state.broadcast.nbytes,
            bytes_up=step.bytes_up + 8 * (self._asked - len(known)),
        )

    def _keep(self) -> Outcome:
        """The outcome of a round with the clients that were lost: the model is kept."""
        now = self.now
        if not self.lost:
            raise RuntimeError(f"{self._algorithm.select} selects nobody of {now.population.clients} connected clients")
        now.state = dataclasses.replace(now.state, select=self.select)
        now.heard = Heard(arrived=dict.fromkeys(self.lost, 0))
        while not isinstance(step := now.advance(), Outcome):
            if isinstance(step, AskLosses):
                nothing = np.full(len(step.ids), np.nan)
                now.heard = now.heard.and_losses(step, nothing, self.lost)
            else:
                now.heard = now.heard.and_reports(now.rules.form.reports([], None), self.lost)
        return step
