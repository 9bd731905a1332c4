"""Replies pulled one by one, in the order of the clients' ids, so that a server need not hold all of them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from fedalpha.flower.exchange import collect, matched, push


class Pulled(Iterable[Message]):
    """The replies to training messages. Those that are not pulled yet wait on the SuperLink.

    Code that iterates over it (a subclass of `FedAlpha`) gets all replies at once; `by_client` then uses the same.
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
        """Each client's reply in the order of the ids; None if there is none in time."""
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
    """Each client's reply in the order of the ids, whether replies are pulled or all there."""
    if isinstance(replies, Pulled):
        return replies.by_client()
    found: dict[int, Any] = matched(messages, replies)
    return iter([(id, found.pop(id, None)) for id in sorted(messages)])
