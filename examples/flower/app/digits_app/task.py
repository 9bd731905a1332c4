"""What server and clients agree on. Replace `data` by each node's own data."""

from __future__ import annotations

from functools import cache

from flwr.app import Context

import fedalpha
from fedalpha.data.federations import Examples, Federation

MODEL = "mlp"
UPDATE = "sgd(lr=0.1, batch=32, epochs=1)"
PARTITION = "shards(size=30)"
SEED = 0


@cache
def digits(clients: int) -> Federation:
    """The embedded digits, split by the seed: here every node can compute the same split."""
    return fedalpha.federation("digits", partition=PARTITION, clients=clients, seed=SEED)


def data(context: Context) -> Examples:
    """The training data of this node."""
    node = context.node_config
    return digits(int(node["num-partitions"])).client(int(node["partition-id"]))
