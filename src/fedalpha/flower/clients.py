"""The node of each client, and the server's memory of each client."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from logging import INFO, WARNING
from typing import Any, Literal

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log

from fedalpha.flower.exchange import collect, push
from fedalpha.flower.queries import ASK_CLIENT, CLIENT_ID, EXAMPLES
from fedalpha.flower.replies import Rejected, client_id, metrics_of, number
from fedalpha.text import shown

Source = Literal["query", "evaluate", "train"]
"""The source of F_i(w_t): a query, the evaluation of w_t, or the client's last training (an estimate)."""
RETRY = 30.0
"""Seconds after which a node that did not report a usable id is asked again."""


@dataclass(frozen=True)
class Node:
    """A connected node. Only nodes that an operator registered (node authentication) have a name."""

    id: int
    name: str = ""
    key: str = ""
    """SHA-256 of its public key, if the SuperLink checks keys; otherwise nodes make a new key at each start"""
    since: str = ""

    def __str__(self) -> str:
        return shown(self.name) if self.name else str(self.id)


def connected(grid: Grid) -> dict[int, Node]:
    """The nodes of a federation by id, in the order in which they were registered."""
    nodes = [
        Node(
            info.node_id,
            info.name,
            hashlib.sha256(info.public_key).hexdigest() if info.name else "",
            info.registered_at,
        )
        for info in grid.get_nodes()
    ]
    return {node.id: node for node in sorted(nodes, key=lambda node: (node.since, node.id))}


@dataclass
class KnownClients:
    """The node of each client, and what clients last reported.

    A client is identified by the id that it reports. An id that a connected node has is not given to another node. If
    node authentication is on, an id stays with the key that claimed it first.
    """

    weighted_by_key: str = EXAMPLES
    """the metric that holds a client's size; queries report `EXAMPLES` only"""
    source: Source = "query"
    nodes: dict[int, int] = field(default_factory=dict)
    """client id → node id"""
    sizes: dict[int, float] = field(default_factory=dict)
    """client id → size, as last reported"""
    keys: dict[int, str] = field(default_factory=dict)
    """client id → key of the node that claimed it first, where nodes are authenticated"""
    losses: dict[int, tuple[int, float]] = field(default_factory=dict)
    """client id → round and loss, as last reported with an evaluation or a training"""
    nameless: set[int] = field(default_factory=set)
    """ids of clients that do not answer queries; they have the id of their node"""
    asked: set[int] = field(default_factory=set)
    """nodes that have been waited for"""
    waiting: dict[str, int] = field(default_factory=dict)
    """message id → node, of queries that are not answered yet"""
    problems: dict[int, str] = field(default_factory=dict)
    """node id → why it is left out"""
    _again: dict[int, float] = field(default_factory=dict)
    _said: set[str] = field(default_factory=set)
    _seen: dict[int, Node] = field(default_factory=dict)

    def memory(self) -> dict[str, Any]:
        """The state that a restarted server needs."""
        return {"sizes": self.sizes, "keys": self.keys, "losses": {i: list(told) for i, told in self.losses.items()}}

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Restore what `memory` returned."""
        self.sizes, self.keys = dict(memory["sizes"]), dict(memory["keys"])
        self.losses = {i: (int(told[0]), float(told[1])) for i, told in memory["losses"].items()}

    def label(self, id: int) -> str:
        """The name of the node behind a client, or the node's id."""
        node = self.nodes[id]
        return str(self._seen.get(node, node))

    def estimates(self, ids: Iterable[int], server_round: int) -> dict[int, float]:
        """The losses that need no query in this round; the server has to ask the other clients.

        The loss of an evaluation is F_i(w_t) if it is of the round before. A client that answers no queries counts
        with the loss that it last reported, and before it has reported one with the mean of all others.
        """
        if self.source == "query":
            return {}
        mean = _mean([loss for _, loss in self.losses.values()]) if self.losses else 1.0
        found = {}
        for id in ids:
            told, loss = self.losses.get(id, (-1, mean))
            current = told == server_round - 1 if self.source == "evaluate" else told >= 0
            if current or id in self.nameless:
                found[id] = loss
        return found

    def measured(self, ids: list[int]) -> list[int]:
        """The clients that have reported their size; all clients as long as no client has reported one."""
        found = [id for id in ids if id in self.sizes]
        if not found:
            return ids
        for id in sorted(set(ids) - set(found)):
            text = (
                "fedalpha: client %d (node %s) takes no part, because the rules need its size and it does not tell it"
            )
            self._once(WARNING, text, id, self.label(id), key=f"size of {id}")
        return found

    def call(self, grid: Grid, timeout: float | None, server_round: int = 1, needs_query: bool = True) -> list[int]:
        """Ask unknown nodes for their client id. Returns the sorted ids of the connected clients.

        A node is waited for once. A node that did not answer is asked again, without waiting, in later calls. Without
        ``needs_query`` a node whose app does not answer takes part under its node id. With ``timeout=0`` no node is
        waited for.
        """
        here = connected(grid)
        self._seen |= here
        self.problems = {node: why for node, why in self.problems.items() if node in here}
        now = time.monotonic()
        busy = set(self.waiting.values()) | set(self.nodes.values())
        due = [node for node in here if node not in busy and self._again.get(node, now) <= now]
        first = [node for node in due if node not in self.asked]
        self.waiting |= push(grid, _who([node for node in due if node in self.asked], server_round))
        late = collect(grid, self.waiting, 0)
        fresh = push(grid, _who(first, server_round))
        replies = late | collect(grid, fresh, timeout)
        self.waiting |= fresh
        self.asked.update(first)
        for node in here:
            if node in replies or (node in first and timeout != 0):
                self._hear(here, node, replies.get(node), needs_query)
        self._tell(here)
        return sorted(id for id, node in self.nodes.items() if node in here)

    def wait(
        self,
        grid: Grid,
        least: int,
        seconds: float,
        timeout: float | None,
        server_round: int = 1,
        needs_query: bool = True,
    ) -> list[int]:
        """Repeat `call` until at least ``least`` clients are connected; raises after ``seconds``.

        Raises at once if the app answers no queries: all nodes of a run have the same app.
        """
        end = time.monotonic() + seconds
        last = -1
        while len(ids := self.call(grid, timeout, server_round, needs_query)) < least:
            left_out = sorted(self.problems.items())
            if left_out and not ids and all(advice(why) for _, why in left_out):
                node, why = left_out[0]
                raise RuntimeError(
                    f"node {self._seen[node]} does not answer a query that these rules need: {why}{advice(why)}"
                )
            if time.monotonic() >= end:
                reasons = [f"node {self._seen[node]} is left out: {why}" for node, why in left_out]
                raise RuntimeError(
                    f"{len(ids)} clients are connected, {least} are needed, after {seconds:g} seconds; "
                    + ("; ".join(reasons[:3]) if reasons else "start more SuperNodes")
                    + "; or lower min_available_nodes, or raise wait_for_nodes="
                )
            if len(ids) != last:
                log(INFO, "fedalpha: waiting for clients: %d connected, %d needed", len(ids), least)
            last = len(ids)
            time.sleep(1)
        return ids

    def _hear(self, here: Mapping[int, Node], node: int, reply: Message | None, needs_query: bool) -> None:
        """Register a node under the id that it reports, or store why it is left out."""
        try:
            if reply is not None and reply.has_error() and not needs_query:
                self._name(here, node, reply)
                return
            metrics = metrics_of(reply)
            id = client_id(metrics, CLIENT_ID)
            tells = self.weighted_by_key == EXAMPLES and EXAMPLES in metrics
            sizes = {id: number(metrics, EXAMPLES)} if tells else {}
            self._claim(here, id, here[node])
            self.sizes |= sizes
            self.nameless.discard(id)
        except Rejected as reason:
            self.problems[node] = str(reason)
            self._again[node] = time.monotonic() + RETRY

    def _name(self, here: Mapping[int, Node], node: int, reply: Message) -> None:
        """Register a node whose app does not answer queries under its node id."""
        id = node % 2**63  # node ids are unsigned; ids of clients are int64
        self._claim(here, id, here[node])
        self.nameless.add(id)
        try:
            metrics_of(reply)
        except Rejected as reason:
            self._once(
                INFO,
                "fedalpha: nodes that do not report a client id take part under their node id; a node that registers "
                "again is a new client. The first one answered: %s",
                str(reason),
                key="nameless",
            )

    def _claim(self, here: Mapping[int, Node], id: int, node: Node) -> None:
        """Give the id to the node; raises `Rejected` if another node has it."""
        holder = self.nodes.get(id)
        if holder is not None and holder != node.id and holder in here:
            raise Rejected(f"it claims client {id}, which is node {here[holder]}, and that node is connected")
        if id in self.keys and node.key != self.keys[id]:
            raise Rejected(f"it claims client {id}, which belongs to a node with another key")
        if holder is not None and holder != node.id:
            log(WARNING, "fedalpha: client %d is now node %s; it was node %d before", id, node, holder)
        if node.key:
            self.keys[id] = node.key
        self.nodes[id] = node.id
        self.problems.pop(node.id, None)
        self._again.pop(node.id, None)

    def _tell(self, here: Mapping[int, Node]) -> None:
        """Log each reason once, with the nodes that it concerns."""
        by_reason: dict[str, list[str]] = {}
        for node, reason in self.problems.items():
            by_reason.setdefault(reason, []).append(str(here[node]))
        for reason, nodes in by_reason.items():
            who = ", ".join(nodes[:5]) + (f" and {len(nodes) - 5} more" if len(nodes) > 5 else "")
            text = "fedalpha: node %s is left out until it reports a usable client id: %s%s"
            self._once(WARNING, text, who, reason, advice(reason), key=reason)

    def _once(self, level: int, text: str, *values: object, key: str) -> None:
        if key not in self._said:
            self._said.add(key)
            log(level, text, *values)


def _mean(losses: list[float]) -> float:
    try:
        return math.fsum(losses) / len(losses)
    except OverflowError:  # clients may report losses whose sum is no float
        return math.fsum(loss / len(losses) for loss in losses)


def nobody_trained(rows: Iterable[Mapping[str, Any]]) -> str:
    """The message of a run in which no client has trained, with the most frequent reason."""
    reasons = [refusal["reason"] for row in rows for refusal in row["refused"]] or [row["kept"] for row in rows]
    reason = max(set(reasons), key=reasons.count)
    return f"no client has trained, so the model is the initial one; most frequent reason: {reason}{advice(reason)}"


def advice(reason: str) -> str:
    """What to do, if the node's own error shows it."""
    if "No query function registered" in reason:
        return "; add fedalpha.flower.add_loss_query to its ClientApp"
    if "Invalid message type" in reason or "fitins." in reason or "evaluateins." in reason:
        return "; add fedalpha.flower.loss_query_mod to ClientApp(client_fn, mods=[…])"
    return ""


def _who(nodes: Iterable[int], server_round: int) -> list[Message]:
    content = RecordDict({"config": ConfigRecord({"server-round": server_round})})
    return [Message(content=content, message_type=ASK_CLIENT, dst_node_id=node) for node in nodes]
