"""A client's state between rounds, in the client app.

By default the state is part of the messages: the server sends the state of the last round in which the client's report
was used, and the client sends the next state with its report. If states stay on the nodes, the server sends the number
of that round instead, and the node keeps its states under the numbers of their rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

from fedalpha.flower.names import COMMITTED, FRESH, STATE, TOLD, TREE
from fedalpha.store.tree import pack, unpack


class Kept:
    """The state of one client in one round."""

    def __init__(self, message: Message, context: Context, number: int) -> None:
        content = message.content
        told: dict[str, Any] = dict(content.config_records.get(TOLD, {}))
        self._on_node = COMMITTED in told
        self._committed, self._number, self._context = int(told.get(COMMITTED, 0)), number, context
        self._sent = (content.array_records.get(STATE), told.get(TREE))
        self._fresh = False

    def state(self) -> Any:
        """The state from which the client starts; empty in its first round, or if the node has lost it."""
        arrays, tree = self._sent
        if self._on_node:
            arrays = self._context.state.array_records.get(_name(self._committed))
            rest = self._context.state.config_records.get(f"{_name(self._committed)}.{TREE}")
            tree = None if rest is None else rest.get(TREE)
            self._fresh = self._committed > 0 and tree is None
        if tree is None:
            return {}
        return unpack(str(tree), {name: array.numpy() for name, array in (arrays or {}).items()})

    def put(self, state: Mapping[str, Any], content: RecordDict) -> None:
        """Send the next state with the reply, or keep it on the node together with the last one that was used."""
        if not state:
            return
        tree, found = pack(state)
        arrays = ArrayRecord({name: Array(value) for name, value in found.items()})
        if not self._on_node:
            content[STATE], content[TOLD] = arrays, ConfigRecord({TREE: tree})
            return
        held = self._context.state
        for name in [name for name in held if name.startswith(STATE) and not name.startswith(_name(self._committed))]:
            del held[name]
        held[_name(self._number)] = arrays
        held[f"{_name(self._number)}.{TREE}"] = ConfigRecord({TREE: tree})
        content[TOLD] = ConfigRecord({FRESH: self._fresh})


def _name(number: int) -> str:
    return f"{STATE}.{number:09d}"
