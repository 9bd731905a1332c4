"""A model of NumPy arrays that is not trained at all."""

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(msg: Message, context: Context) -> Message:
    ndarrays = msg.content["arrays"].to_numpy_ndarrays()
    ndarrays = [np.asarray(array + 1.0) for array in ndarrays]
    metrics = MetricRecord({"random_metric": 0.5, "num-examples": 1})
    content = RecordDict({"arrays": ArrayRecord(ndarrays), "metrics": metrics})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    metrics = MetricRecord({"random_metric": [0.1, 0.2, 0.3], "num-examples": 1})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=msg)
