"""Messages to nodes and their replies: all at once, or pulled one by one in the order of the clients' ids."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from logging import WARNING
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid
from flwr.supercore import log


def exchange(
    grid: Grid, messages: list[Message], timeout: float | None, longest_pause: float = 3.0
) -> dict[int, Message]:
    """Send messages and collect the replies by destination node until all have arrived or the time is over.

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


class Pulled(Iterable[Message]):
    """The replies to training messages. Those that are not pulled yet wait on the SuperLink.

    Code that iterates over this object (a subclass of `FedAlpha`) gets all replies at once; `by_client` then uses them.
    """

    def __init__(self, grid: Grid, messages: list[Message], clients: Mapping[int, int], seconds: float) -> None:
        self._grid = grid
        self._sent = {clients[m.metadata.dst_node_id]: m for m in messages if m.metadata.dst_node_id in clients}
        self._waiting = push(grid, messages)
        self._end = time.monotonic() + seconds
        self._all: list[Message] | None = None

    def __iter__(self) -> Iterator[Message]:
        if self._all is None:
            self._all = [reply for _, reply in self._pull() if reply is not None]
        return iter(self._all)

    @property
    def lazy(self) -> bool:
        """Whether replies are still to be pulled."""
        return self._all is None

    def by_client(self) -> Iterator[tuple[int, Message | None]]:
        """Each client's reply in the order of the ids; None if none arrived in time."""
        if self._all is None:
            return self._pull()
        found = matched(self._sent, self._all)
        return iter([(id, found.get(id)) for id in sorted(self._sent)])

    def _pull(self) -> Iterator[tuple[int, Message | None]]:
        by_node = {node: message_id for message_id, node in self._waiting.items()}
        for id, message in sorted(self._sent.items()):
            node = message.metadata.dst_node_id
            waiting = {by_node[node]: node} if node in by_node else {}
            replies = collect(self._grid, waiting, max(0.0, self._end - time.monotonic()))
            yield id, replies.pop(node, None)


def by_client(messages: Mapping[int, Message], replies: Iterable[Message]) -> Iterator[tuple[int, Message | None]]:
    """Each client's reply in the order of the ids, for pulled replies and for a list of replies."""
    if isinstance(replies, Pulled):
        return replies.by_client()
    found: dict[int, Any] = matched(messages, replies)
    return iter([(id, found.pop(id, None)) for id in sorted(messages)])


class Shown(Grid):
    """A grid with only the chosen nodes, from which a Flower strategy samples."""

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
