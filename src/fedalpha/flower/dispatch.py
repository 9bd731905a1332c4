"""The orders of a round, carried out by messages: connected clients, their losses, training and evaluation."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid

from fedalpha.flower.clients import KnownClients
from fedalpha.flower.exchange import Shown, exchange
from fedalpha.flower.metrics import measured
from fedalpha.flower.names import BATCH, CLIP, UPLOAD
from fedalpha.flower.packing import record_of
from fedalpha.flower.plug_points import Connected
from fedalpha.flower.queries import ASK_LOSS, EXAMPLES, LOSS, WANTED
from fedalpha.flower.replies import Rejected, finite, metrics_of, number
from fedalpha.flower.reports import Wanted
from fedalpha.flower.rounds import Round
from fedalpha.flower.rules import Rules
from fedalpha.round import AskLosses, Ids
from fedalpha.select import Select
from fedalpha.strategies import Array as Numbers

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]


@dataclass(frozen=True)
class Sending:
    """The content of messages: the arrays and the configuration that Flower passes, and the grid."""

    grid: Grid
    arrays: ArrayRecord
    config: ConfigRecord


class Dispatch:
    """The messages of a run. The Flower strategy ``over`` makes them; the clients are those that `KnownClients` knows.

    ``timeout`` limits the wait for replies, ``query_timeout`` the wait for losses (None: ``timeout``), and
    ``wait_for_nodes`` the seconds until enough clients have reported their ids.
    """

    def __init__(
        self,
        rules: Rules,
        clients: KnownClients,
        loss_keys: Mapping[str, str],
        validation: EvaluateFn | None,
        query_timeout: float | None,
        wait_for_nodes: float,
    ) -> None:
        self.rules, self.over, self.clients = rules, rules.over, clients
        self.loss_keys, self.validation = loss_keys, validation
        self.query_timeout, self.wait_for_nodes = query_timeout, wait_for_nodes
        self.timeout: float = 3600

    def connected(self, grid: Grid, least: int, server_round: int, patient: bool = True) -> Connected:
        """The clients that are connected, when there are at least ``least`` of them.

        If not ``patient``, new nodes take part from the call on in which their answer has arrived.
        """
        timeout = (self.query_timeout or self.wait_for_nodes) if patient else 0.0
        ids = self.clients.wait(grid, least, self.wait_for_nodes, timeout, server_round, self._needs_query)
        if self._needs_sizes:
            ids = self.clients.measured(ids)
        return Connected(np.array(ids, dtype=np.int64), dict(self.clients.sizes))

    @property
    def _needs_sizes(self) -> bool:
        """Whether only clients of known size can take part, because their probabilities or shares depend on it."""
        algorithm = self.rules.algorithm
        return algorithm.select.sizes_first or "design" in algorithm.weigh.requires

    @property
    def _needs_query(self) -> bool:
        """Whether only clients that answer queries can take part."""
        algorithm = self.rules.algorithm
        if algorithm.secure is not None:
            return True
        asks = type(algorithm.select).ask is not Select.ask
        return asks or (self.clients.source == "query" and "before" in algorithm.weigh.requires)

    def ask(self, now: Round, order: AskLosses, sending: Sending) -> None:
        """Ask clients for their losses, as far as these are not known."""
        losses, problems, sizes = self.losses(now, order, sending)
        self.clients.sizes.update(sizes)
        now.know(self.clients.sizes)
        now.heard = now.heard.and_losses(order, losses, problems)

    def losses(
        self, now: Round, order: AskLosses, sending: Sending
    ) -> tuple[Numbers, dict[int, str], dict[int, float]]:
        """The losses of an order, the reasons why some have no usable loss, and the sizes that clients reported."""
        ids = order.ids.tolist()
        known = self.clients.estimates(ids, now.number) if order.sample is None else {}
        told = {} if order.sample is None else {BATCH: order.sample.batch}
        asked = self._messages(now, [i for i in ids if i not in known], sending, told)
        timeout = self.timeout if self.query_timeout is None else self.query_timeout
        losses, problems, sizes = _query(sending.grid, asked, order.ids, timeout, self.over.weighted_by_key, known)
        if self.rules.fault is not None:
            losses = self.rules.fault.losses(now.scene(), order.ids, losses)
        return losses, problems, sizes

    def measure(self, now: Round, order: Any) -> None:
        """Losses on the server's own data: of the current model, or of a client's."""
        assert self.validation is not None
        form, found = self.rules.form, {}
        for of in order.of:
            parameters = now.state.broadcast.parameters
            if of is not None:
                parameters = next(r for r in now.heard.reports.items if r.id == of).parameters
            found[of] = measured(self.validation(now.number, record_of(form.arrays(parameters))))
        now.heard = now.heard.and_measured(found)

    def training(self, now: Round, sending: Sending, on_node: bool) -> dict[int, Message]:
        """Each client's training message; ``on_node`` says that clients keep their state."""
        order = now.order
        assert order is not None
        extras = self.rules.form.arrays(now.state.broadcast.extras)
        record = record_of(extras) if extras else None
        wanted = sorted(order.wanted & {"after", "labels"})
        told: dict[str, Any] = {WANTED: [str(need) for need in wanted]} if wanted else {}
        if (norm := self.rules.algorithm.combine.clipped_to) is not None:
            told[CLIP] = float(norm)
        if (upload := self.rules.algorithm.upload) is not None:
            told[UPLOAD] = str(upload)
        made = self._messages(now, order.ids.tolist(), sending, told)
        return {id: now.addressed(id, message, record, on_node) for id, message in made.items()}

    def wanted(self, now: Round) -> Wanted:
        """What a training reply must hold."""
        assert now.order is not None
        needs = now.order.wanted | ({"train"} if self.clients.source == "train" else set())
        sent, admission = now.state.broadcast, self.rules.algorithm.admission
        arrays, common = self.rules.form.arrays(sent.parameters), self.rules.form.arrays(sent.extras)
        extras, size_key = self.rules.sends(sent), self.over.weighted_by_key
        upload = self.rules.algorithm.upload
        return Wanted(size_key, self.loss_keys, frozenset(needs), arrays, admission.bound, extras, common, upload)

    def evaluation(self, server_round: int, ids: Ids, sending: Sending) -> list[Message]:
        """The evaluation messages of these clients, as ``over`` makes them."""
        with _own_random():
            shown = Shown(sending.grid, [self.clients.nodes[i] for i in ids.tolist()])
            return list(self.over.configure_evaluate(server_round, sending.arrays, sending.config, shown))

    def _messages(self, now: Round, ids: list[int], sending: Sending, told: Mapping[str, Any]) -> dict[int, Message]:
        """The training messages of these clients, as ``over`` makes them; ``told`` is added to the configuration."""
        if not ids:
            return {}
        node = self.clients.nodes
        with _own_random():
            shown = Shown(sending.grid, [node[i] for i in ids])
            settings = ConfigRecord({**sending.config, **told})
            made = list(self.over.configure_train(now.number, sending.arrays, settings, shown))
        by_node = {m.metadata.dst_node_id: m for m in made}
        return {i: by_node[node[i]] for i in ids if node[i] in by_node}


def _query(
    grid: Grid, asked: Mapping[int, Message], ids: Ids, timeout: float, size_key: str, known: Mapping[int, float]
) -> tuple[Numbers, dict[int, str], dict[int, float]]:
    """F_i(w_t) of these clients, the reasons why some have no usable loss, and the sizes that they reported.

    ``asked`` holds each client's training message, whose content is sent; ``known`` the losses of clients that are
    not asked. Queries report sizes as `EXAMPLES` only.
    """
    queries = [
        Message(content=m.content, message_type=ASK_LOSS, dst_node_id=m.metadata.dst_node_id) for m in asked.values()
    ]
    replies = exchange(grid, queries, timeout)
    losses, problems, sizes = np.full(len(ids), math.nan), {}, {}
    for place, id in enumerate(ids.tolist()):
        if id in known:
            losses[place] = known[id]
            continue
        try:
            message = asked.get(id)
            metrics = metrics_of(None if message is None else replies.get(message.metadata.dst_node_id))
            loss = finite(metrics, LOSS)
            if size_key == EXAMPLES:
                sizes[id] = number(metrics, EXAMPLES)
            losses[place] = loss
        except Rejected as reason:
            problems[id] = str(reason)
    return losses, problems, sizes


@contextmanager
def _own_random() -> Iterator[None]:
    """Restore the global random generator afterwards, with which Flower shuffles nodes."""
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)
