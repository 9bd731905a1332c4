"""The server's part of secure sums: one session per round, by messages. The server never gets a client's model."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from logging import WARNING
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log

from fedalpha.flower.exchange import Pulled, exchange
from fedalpha.flower.fingerprint import fingerprint
from fedalpha.flower.names import ASK_SECURE, CONTENT, REFUSED, SECURE, STEP
from fedalpha.flower.replies import Rejected, content_of, metrics_of, number
from fedalpha.flower.reports import Report
from fedalpha.flower.rounds import Round
from fedalpha.flower.rules import Rules
from fedalpha.flower.sums import Arrays, is_float
from fedalpha.round import Nothing
from fedalpha.secure.forms import Secure
from fedalpha.secure.messages import Packed
from fedalpha.secure.rounds import Costs, Failed, Total, session_of, summed
from fedalpha.secure.server import Server, Unusable
from fedalpha.text import shown


class SecureSum:
    """Carries out the training order of a round through the protocol.

    ``timeout`` limits the wait of each step, ``training`` that of the training step; ``size_key`` is the metric with
    the number of examples.
    """

    def __init__(self, secure: Secure, grid: Grid, timeout: float, training: float, size_key: str) -> None:
        self.secure, self.grid, self.timeout, self.training, self.size_key = secure, grid, timeout, training, size_key
        self.costs = Costs()

    def play(self, now: Round) -> dict[str, float] | None:
        """Add the answers to the round; returns the cost of the session, None if there is no sum."""
        order = now.order
        assert order is not None
        assert order.alpha is not None
        algorithm = now.rules.algorithm
        alpha = dict(zip(order.ids.tolist(), order.alpha.tolist(), strict=True))
        weights = self.secure.weights(algorithm, alpha)
        if reason := self.secure.too_few(weights):
            now.heard = now.heard.and_reports(Nothing(reason))
            return None
        form = now.rules.form
        sent = form.arrays(now.state.broadcast.parameters)
        length = sum(value.size for value in sent.values() if is_float(value))
        broadcast = self._broadcast(now.messages.values()) if self.secure.signed else b""
        session = session_of(self.secure, algorithm, weights, length, f"run {now.seed}", now.state.round, broadcast)
        server, samples = Server(session, weights), dict[int, float]()
        try:
            total = summed(server, lambda step, asked: self._ask(now, step, asked, samples), self.costs)
        except Failed as failure:
            now.heard = now.heard.and_reports(Nothing(str(failure), failure.problems), failure.problems)
            return None
        for id, note in total.notes.items():
            log(WARNING, "fedalpha: round %d: client %d: %s", now.number, id, note)
        self._hear(now, total, alpha, sent, samples)
        costs = self.costs
        seconds = round(costs.server, 6)
        return {"bytes_up": costs.up, "bytes_down": costs.down, "seconds": seconds, "error": total.sum.error}

    def _broadcast(self, messages: Iterable[Message]) -> bytes:
        """The digest of the training message of all clients."""
        contents = {id(message.content): message.content for message in messages}  # most messages share theirs
        found = {fingerprint(content) for content in contents.values()}
        if len(found) > 1:
            raise ValueError(
                f"secure = {self.secure}: the training messages differ from client to client, and clients with signing "
                "keys insist on equal ones; leave out what configure_train of over= sets for single clients"
            )
        return found.pop()

    def _hear(
        self, now: Round, total: Total, weights: Mapping[int, float], sent: Arrays, samples: Mapping[int, float]
    ) -> None:
        """The reports of the clients in the sum, without models and losses, and Σ alpha_i·w_i."""
        mass = math.fsum(weights[id] for id in total.ids)
        items = [Report(id, None, samples=samples[id]) for id in total.ids]
        now.told = {item.id: item for item in items}
        moves = self.secure.shared_out(now.rules.algorithm, total, weights)
        running: Any = _Given(added(sent, moves, mass), max(weights[id] for id in total.ids))
        reports = now.rules.form.reports([now.rules.form.report(item) for item in items], running)
        reports = dataclasses.replace(reports, uploaded=self.costs.up)
        now.heard = now.heard.and_reports(reports, total.problems)

    def _ask(
        self, now: Round, step: str, asked: dict[int, Packed], samples: dict[int, float]
    ) -> Iterator[tuple[int, object]]:
        """Send a step to each client; yields the answers that arrived, in the order of the ids."""
        messages = {id: self._message(now, id, step, packed) for id, packed in asked.items() if id in now.messages}
        for id, reply in self._replies(step, messages):
            if reply is None:
                continue
            try:
                record = content_of(reply).config_records.get(SECURE, {})
                if REFUSED in record:
                    raise Rejected(shown(record[REFUSED]))
                if step == "masked":
                    samples[id] = number(metrics_of(reply), self.size_key)
                yield id, record.get(CONTENT)
            except Rejected as reason:
                yield id, Unusable(str(reason))

    def _message(self, now: Round, id: int, step: str, packed: Packed) -> Message:
        record = ConfigRecord({STEP: step, CONTENT: packed.packed})
        trained = now.messages[id]
        node = trained.metadata.dst_node_id
        if step != "masked":
            return Message(RecordDict({SECURE: record}), message_type=ASK_SECURE, dst_node_id=node)
        content = RecordDict({**trained.content, SECURE: record})
        return Message(content, message_type=trained.metadata.message_type, dst_node_id=node)

    def _replies(self, step: str, messages: Mapping[int, Message]) -> Iterable[tuple[int, Message | None]]:
        """Masked vectors are pulled one by one, so that only one of them is in memory at a time."""
        if step == "masked":
            clients = {message.metadata.dst_node_id: id for id, message in messages.items()}
            return Pulled(self.grid, list(messages.values()), clients, self.training).by_client()
        found = exchange(self.grid, list(messages.values()), self.timeout)
        return [(id, found.get(message.metadata.dst_node_id)) for id, message in messages.items()]


class _Given:
    """A finished sum in place of a running one."""

    def __init__(self, arrays: Arrays, heaviest: float) -> None:
        self.arrays, self.heaviest = arrays, heaviest

    def total(self) -> Arrays:
        return self.arrays


def added(sent: Arrays, moves: np.ndarray[Any, np.dtype[np.float64]], mass: float) -> Arrays:
    """``mass``·w_t + moves in float64; integer arrays keep their value, because those of clients are not known."""
    found, start = dict(sent), 0
    for name, old in sorted(sent.items()):
        if is_float(old):
            part = moves[start : start + old.size].reshape(old.shape)
            found[name] = mass * old.astype(np.float64) + part
            start += old.size
    return found


def check(rules: Rules, source: str, evaluates: bool, shadows: bool) -> None:
    """Raise ValueError for settings that do not work with the secure sum of a live federation, or undo it."""
    secure, fault = rules.algorithm.secure, rules.fault
    if secure is None:
        return
    name = secure.text_name
    if source == "train":
        raise ValueError(f"losses='train' needs the training loss of every client, which {name} does not send")
    if fault is not None:
        raise ValueError(f"fault = {fault} changes single replies, which {name} hides; leave it out")
    if not secure.blind:
        return
    if source != "query":
        raise ValueError(f"losses = {source!r} asks clients for their losses, which {name} hides; leave losses out")
    if evaluates:
        raise ValueError(f"clients' evaluations reveal their losses, which {name} hides; pass fraction_evaluate=0.0")
    if shadows:
        raise ValueError(f"shadow rules ask clients for their losses, which {name} hides; leave shadow out")
