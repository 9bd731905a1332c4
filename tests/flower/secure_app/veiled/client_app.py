"""Client i pulls the model halfway to its own target; client 3 fails in round 2, after it has shared its secrets."""

from __future__ import annotations

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedalpha.flower import add_loss_query, secured

plain = ClientApp()


def target(context: Context) -> np.ndarray:
    id = int(context.node_config["partition-id"])
    return np.array([id, 1, -id, 0.5], dtype=np.float32)


def loss(arrays: ArrayRecord, context: Context) -> tuple[float, int]:
    return float(((arrays["w"].numpy() - target(context)) ** 2).sum()), 10


@plain.train()
def train(message: Message, context: Context) -> Message:
    if int(context.node_config["partition-id"]) == 3 and message.content["config"]["server-round"] == 2:
        raise RuntimeError("this client fails in round 2")
    w = (message.content["arrays"]["w"].numpy() + target(context)) / 2
    content = RecordDict({"arrays": ArrayRecord({"w": Array(w)}), "metrics": MetricRecord({"num-examples": 10})})
    return Message(content, reply_to=message)


app = secured(add_loss_query(plain, loss, examples=lambda context: 10))
