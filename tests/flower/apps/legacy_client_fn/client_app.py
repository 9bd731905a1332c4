"""A NumPyClient, made by a client_fn."""

import numpy as np
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp


class FlowerClient(NumPyClient):
    def __init__(self, target):
        self.target = target

    def fit(self, parameters, config):
        weights = [np.asarray((array + self.target) / 2, dtype=np.float32) for array in parameters]
        return weights, 10, {"train_loss": self._loss(parameters), "note": "texts are allowed here"}

    def evaluate(self, parameters, config):
        return self._loss(parameters), 10, {"accuracy": 0.5}

    def _loss(self, parameters):
        return float(sum(((array - self.target) ** 2).sum() for array in parameters))


def client_fn(context):
    return FlowerClient(float(context.node_config["partition-id"])).to_client()


app = ClientApp(client_fn)
