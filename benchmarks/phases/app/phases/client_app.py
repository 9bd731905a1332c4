"""Client i pulls the model halfway to i."""

from __future__ import annotations

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from fedalpha.flower import add_loss_query

app = ClientApp()


def received(message: Message) -> NDArray[np.float32]:
    record: ArrayRecord = message.content.array_records["arrays"]
    return record["w"].numpy()


def measured(message: Message, context: Context) -> float:
    target = float(context.node_config["partition-id"])
    return float(((received(message)[:1000] - target) ** 2).mean())


@app.train()
def train(message: Message, context: Context) -> Message:
    w = (received(message) + np.float32(context.node_config["partition-id"])) / 2
    metrics = MetricRecord({"num-examples": 10, "train_loss": measured(message, context)})
    return Message(RecordDict({"arrays": ArrayRecord({"w": Array(w)}), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    metrics = MetricRecord({"num-examples": 10, "eval_loss": measured(message, context)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


add_loss_query(app, examples=lambda context: 10)
