"""Messages to nodes and back."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from logging import WARNING
from typing import Any

import numpy as np
from flwr.app import Message
from flwr.serverapp import Grid
from flwr.supercore import log

from fedalpha.flower.queries import ASK_LOSS, EXAMPLES, LOSS
from fedalpha.flower.replies import Rejected, finite, metrics_of, number
from fedalpha.round import Ids
from fedalpha.strategies import Array as Numbers


def exchange(
    grid: Grid, messages: list[Message], timeout: float | None, longest_pause: float = 3.0
) -> dict[int, Message]:
    """Send messages and collect the replies by destination node until all are there or time is up.

    Like ``Grid.send_and_receive``, which polls every 3 seconds; this function starts with short pauses.
    Replies are matched by message id, because errors made by the SuperLink carry its own node id.
    """
    return collect(grid, push(grid, messages), timeout, longest_pause)


def push(grid: Grid, messages: list[Message]) -> dict[str, int]:
    """Send messages; returns message id → destination node."""
    if not messages:
        return {}
    pushed = list(grid.push_messages(messages))
    return {id: m.metadata.dst_node_id for id, m in zip(pushed, messages, strict=False) if id}


def collect(
    grid: Grid, waiting: dict[str, int], timeout: float | None, longest_pause: float = 3.0
) -> dict[int, Message]:
    """The replies by node. Messages without a reply in time stay in ``waiting``."""
    replies: dict[int, Message] = {}
    pause, end = 0.1, None if timeout is None else time.monotonic() + timeout
    while waiting:
        for reply in grid.pull_messages(list(waiting)):
            node = waiting.pop(reply.metadata.reply_to_message_id, None)
            if node is not None:
                replies[node] = reply
        if not waiting or (end is not None and time.monotonic() >= end):
            break
        time.sleep(pause)
        pause = min(pause * 1.3, longest_pause)
    return replies


def ask_losses(
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


def matched(messages: Mapping[int, Message], replies: Iterable[Message]) -> dict[int, Message]:
    """The first reply to each client's message; others are logged."""
    by_message = {m.metadata.message_id: i for i, m in messages.items() if m.metadata.message_id}
    by_node = {m.metadata.dst_node_id: i for i, m in messages.items()}
    found: dict[int, Message] = {}
    for reply in replies:
        node = reply.metadata.src_node_id
        id = by_message.get(reply.metadata.reply_to_message_id, by_node.get(node))
        if id is None or id in found:
            log(WARNING, "fedalpha: a reply from node %d is not used: it was not asked for, or it is repeated", node)
            continue
        found[id] = reply
    return found


class Shown(Grid):
    """A grid on which only the chosen nodes can be seen: what a Flower strategy samples from."""

    def __init__(self, grid: Grid, nodes: Iterable[int]) -> None:
        self._grid = grid
        self._nodes = list(nodes)

    def get_node_ids(self) -> Iterable[int]:
        return list(self._nodes)

    def set_run(self, run: Any) -> None:
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        return self._grid.run

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        return self._grid.create_message(*args, **kwargs)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return self._grid.pull_messages(message_ids)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self._grid.send_and_receive(messages, timeout=timeout)
