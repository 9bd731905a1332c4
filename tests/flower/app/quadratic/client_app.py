"""Client i minimises ‖w − target(i)‖²; a hostile node sends a giant.

One client can be told to train in one round until there is a file ``flag``.over: so no test depends on the time that
the others need.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedalpha.flower import add_loss_query

app = ClientApp()


def target(context: Context) -> np.ndarray:
    id = int(context.node_config["partition-id"])
    return np.array([id, 1, -id, 0.5], dtype=np.float32)


def loss(arrays: ArrayRecord, context: Context) -> tuple[float, int]:
    return float(((arrays["w"].numpy() - target(context)) ** 2).sum()), 10


@app.train()
def train(message: Message, context: Context) -> Message:
    config = context.run_config
    here, now = int(context.node_config["partition-id"]), int(message.content["config"]["server-round"])
    if here == config["slow"] and now == config["slow-round"]:
        Path(flag := str(config["flag"])).touch()
        end = time.monotonic() + 3600
        while not Path(f"{flag}.over").exists() and time.monotonic() < end:
            time.sleep(0.5)
    if context.node_config.get("hostile"):
        giant = RecordDict({"arrays": ArrayRecord({"w": Array(np.zeros(5_000_000, dtype=np.float32))})})
        giant["metrics"] = MetricRecord({"num-examples": 10})
        return Message(giant, reply_to=message)
    w = (message.content["arrays"]["w"].numpy() + target(context)) / 2
    content = RecordDict({"arrays": ArrayRecord({"w": Array(w)}), "metrics": MetricRecord({"num-examples": 10})})
    return Message(content, reply_to=message)


add_loss_query(app, loss, examples=lambda context: 10)
