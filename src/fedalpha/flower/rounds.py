"""A live round between its messages: the orders, the answers, and the conversion of replies to reports."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from fedalpha.flower.exchange import Pulled, by_client
from fedalpha.flower.names import COMMITTED, EXTRAS, STATE, TOLD, TREE
from fedalpha.flower.packing import record_of
from fedalpha.flower.plug_points import Connected
from fedalpha.flower.replies import Rejected
from fedalpha.flower.reports import Report, Wanted
from fedalpha.flower.rules import Rules
from fedalpha.flower.sums import Running
from fedalpha.round import Gate, Heard, Order, Outcome, ServerState, Train, advance
from fedalpha.round.shadow import Asked


@dataclass
class Round:
    """A round from the first order to the outcome."""

    rules: Rules
    state: ServerState
    population: Connected
    seed: int
    heard: Heard = field(default_factory=Heard)
    order: Train | None = None
    """the order to train"""
    messages: dict[int, Message] = field(default_factory=dict)
    """client id → training message"""
    outcome: Outcome | None = None
    metrics: list[RecordDict] = field(default_factory=list)
    """the metrics of every usable reply"""
    told: dict[int, Report] = field(default_factory=dict)
    """the usable reports by client id, without their models"""
    asked: Asked | None = None
    """losses that were asked for because of a shadow rule"""
    shadow: dict[str, Any] | None = None
    """the weights of shadow rules"""
    secure: tuple[dict[str, float] | None, int] | None = None
    """the figures of the secure sum for the row, and the bytes that it sent"""
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        # Clients tell their sizes with their losses; a selection that has asked must not draw others after that.
        self.heard = dataclasses.replace(self.heard, among=self.population)

    @property
    def number(self) -> int:
        """The number of the round as Flower counts, from 1."""
        return self.state.round + 1

    def advance(self) -> Order | Outcome:
        return advance(self.rules.algorithm, self.state, self.population, self.seed, self.heard)

    def know(self, sizes: Mapping[int, float]) -> None:
        """Use the sizes that are known so far."""
        self.population = dataclasses.replace(self.population, known=dict(sizes))

    def addressed(self, id: int, message: Message, extras: ArrayRecord | None, on_node: bool) -> Message:
        """A client's training message with the extras of the broadcast and the client's own state."""
        state: dict[str, Any] = dict(self.state.clients.get(id, {}))
        more: dict[str, Any] = {}
        if extras is not None:
            more[EXTRAS] = extras
        if on_node:
            more[TOLD] = ConfigRecord({COMMITTED: int(state.get(COMMITTED, 0))})
        elif TREE in state:  # a client may have answered as if it kept its state
            more[STATE] = record_of(state["arrays"])
            more[TOLD] = ConfigRecord({TREE: state[TREE]})
        if not more:
            return message
        kind, node = message.metadata.message_type, message.metadata.dst_node_id
        return Message(RecordDict({**message.content, **more}), message_type=kind, dst_node_id=node)

    def read(self, replies: Iterable[Message], wanted: Wanted) -> None:
        """Turn the replies into reports.

        If the weights are known before training and the combine rule is linear, each reply is pulled,
        checked, added to the sum of its block and dropped. Otherwise all models are kept in memory.
        """
        order, rules = self.order, self.rules
        assert order is not None
        streams = isinstance(replies, Pulled) and replies.lazy and rules.fault is None and not order.hold
        running = self._running(order) if streams and order.alpha is not None else None
        gate = Gate(rules.algorithm.admission, self.state.broadcast, self.seed, self.state.round)
        place = {id: place for place, id in enumerate(order.ids.tolist())}
        items, problems = [], {}
        for id, reply in by_client(self.messages, replies):
            try:
                report = wanted.read(id, reply)
                if COMMITTED in report.state:
                    report = dataclasses.replace(report, state={COMMITTED: self.number})
                if running is not None:
                    if reason := gate.fault(report, place):
                        raise Rejected(reason)
                    assert report.parameters is not None
                    running.add(place[id], report.parameters)
                    report = dataclasses.replace(report, parameters=None)
            except Rejected as reason:
                problems[id] = str(reason)
                continue
            assert reply is not None
            self.note(report, reply)
            items.append(rules.form.report(report))
            del report, reply  # so that its memory is free before the next one is pulled
        if rules.fault is not None:
            items = rules.fault.reports(self.scene(), items)
        self.heard = self.heard.and_reports(rules.form.reports(items, running), problems)

    def _running(self, order: Train) -> Running:
        assert order.alpha is not None
        return Running(order.alpha, order.alone, self.rules.form.arrays(self.state.broadcast.parameters))

    def nothing_came(self, why: str) -> None:
        """End the wait for replies without any."""
        if self.outcome is None:
            self.heard = self.heard.and_reports(self.rules.form.reports([], None), dict.fromkeys(self.messages, why))

    def note(self, report: Report, reply: Message) -> None:
        """Keep the parts of a reply that are needed after its model is dropped."""
        self.told[report.id] = dataclasses.replace(report, parameters=None, extras={}, state={})
        self.metrics.append(RecordDict(dict(reply.content.metric_records)))

    def scene(self) -> Any:
        """The information that a fault needs."""
        from fedalpha.defence.faults import Scene

        return Scene(self.seed, self.state.round, self.population.clients, self.state.broadcast)
