"""A mod of the whole app that reads the round, and Flower's own mods."""

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, message_size_mod

SEEN: list[int] = []


def round_mod(msg: Message, context: Context, call_next) -> Message:
    """Note the round, as a mod that writes a log does."""
    SEEN.append(int(msg.content["config"]["server-round"]))
    return call_next(msg, context)


app = ClientApp(mods=[round_mod, message_size_mod, LocalDpMod(100.0, 0.0, 1.0, 0.1)])


@app.train()
def train(msg: Message, context: Context) -> Message:
    here = 3 * float(context.node_config["partition-id"]) + 1  # no update is 0, which the mod cannot clip
    arrays = [np.asarray((array + here) / 2) for array in msg.content["arrays"].to_numpy_ndarrays()]
    metrics = MetricRecord({"train_loss": here, "num-examples": 10})
    return Message(content=RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics}), reply_to=msg)
