"""Plays some rounds and writes when each one ended, and the bytes of all messages until then."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord
from flwr.serverapp import Grid, ServerApp

from fedalpha.flower import FedAlpha

app = ServerApp()


class Counted(Grid):
    """A grid that counts the bytes of arrays in the messages that pass, and the messages."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self.down = self.up = self.messages = 0

    def get_node_ids(self) -> Iterable[int]:
        return self._grid.get_node_ids()

    def get_nodes(self) -> Any:
        return self._grid.get_nodes()

    def set_run(self, run: Any) -> None:
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        return self._grid.run

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        return self._grid.create_message(*args, **kwargs)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        sent = list(messages)
        self.down += sum(map(_size, sent))
        self.messages += len(sent)
        return self._grid.push_messages(sent)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        found = list(self._grid.pull_messages(list(message_ids)))
        self.up += sum(map(_size, found))
        return found

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        sent = list(messages)
        self.down += sum(map(_size, sent))
        self.messages += len(sent)
        found = list(self._grid.send_and_receive(sent, timeout=timeout))
        self.up += sum(map(_size, found))
        return found


def _size(message: Message) -> int:
    if not message.has_content():
        return 0
    return sum(len(array.data) for record in message.content.array_records.values() for array in record.values())


@app.main()
def main(grid: Grid, context: Context) -> None:
    config: dict[str, Any] = dict(context.run_config)
    counted, ends = Counted(grid), []

    def note(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        ends.append([time.monotonic(), counted.down, counted.up, counted.messages])
        return None

    strategy = FedAlpha(
        config["strategy"], losses=config["losses"], min_available_nodes=config["clients"], min_train_nodes=1
    )
    start = ArrayRecord({"w": Array(np.zeros(config["parameters"], dtype=np.float32))})
    strategy.start(counted, start, num_rounds=config["rounds"], evaluate_fn=note)
    Path(config["out"]).write_text(json.dumps(ends))
