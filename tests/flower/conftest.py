"""Shared by the tests of the Flower strategy: a grid of real client apps in this process."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

collect_ignore = ["app", "apps", "secure_app"]  # apps that tests run, each with modules of its own


class LocalGrid(Grid):
    """Every node runs its ``ClientApp`` when it is sent a message.

    ``spoil(node, message, reply)`` may change a reply, or return None for a client that never answers.
    """

    def __init__(self, app: ClientApp, clients: Iterable[int], first_node: int = 1000) -> None:
        self.app = app
        ids = list(clients)
        self.nodes = {first_node + 37 * place: {"partition-id": id} for place, id in enumerate(ids)}
        self.infos: dict[int, dict[str, Any]] = {}  # node → further fields of its NodeInfo (name, public_key …)
        self.run_config: dict[str, Any] = {}
        self.spoil: Callable[[int, Message, Message], Message | None] = lambda node, message, reply: reply
        self.log: list[tuple[str, int]] = []
        self._replies: dict[str, Message] = {}
        self._next = itertools.count()
        self.contexts: dict[int, Context] = {}
        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1  # what Flower sets in a server app

    def client(self, node: int) -> int:
        return int(self.nodes[node]["partition-id"])

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [NodeInfo(node_id=node, **self.infos.get(node, {})) for node in self.nodes]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            node = message.metadata.dst_node_id
            message.metadata.__dict__["_message_id"] = str(next(self._next))
            self.log.append((message.metadata.message_type, self.client(node)))
            fresh = Context(1, node, dict(self.nodes[node]), RecordDict(), dict(self.run_config))
            context = self.contexts.setdefault(node, fresh)
            try:
                reply: Message | None = self.app(message, context)
            except Exception as error:
                reply = Message(Error(code=2, reason=f"{type(error).__name__}: {error}"), reply_to=message)
            assert reply is not None
            reply = self.spoil(node, message, reply)
            if reply is not None:
                self._replies[message.metadata.message_id] = reply
            ids.append(message.metadata.message_id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._replies.pop(id) for id in list(message_ids) if id in self._replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError


@pytest.fixture
def grid_of() -> type[LocalGrid]:
    return LocalGrid
