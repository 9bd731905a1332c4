"""The Ray engine on a real cluster of two nodes: the embedded engine's bytes, also when a node is killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fedalpha
from fedalpha.callbacks import Callback
from fedalpha.data import Pooled
from fedalpha.task import Task
from histories import same_model, without_times

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two Ray nodes of one worker each, with processes of their own; the driver connects as to any cluster."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    paths = [str(Path(fedalpha.__file__).parents[1]), str(Path(__file__).parents[1])]
    os.environ["PYTHONPATH"] = os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])
    import ray
    from ray.cluster_utils import Cluster

    two = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    two.add_node(num_cpus=1)
    two.wait_for_nodes()
    yield two
    ray.shutdown()
    two.shutdown()


class KillANode(Callback):
    """After the second row: the node that does not hold the driver dies."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster

    def on_round(self, row: dict[str, Any], state: Any) -> bool | None:
        if row["round"] == 1:
            victim = next(node for node in self.cluster.worker_nodes)
            self.cluster.remove_node(victim, allow_graceful=False)
        return None


@pytest.mark.parametrize("strategy", ["FedSoftWorse(T=0.2)", "FedSoftBetter(T=0.2, loss=after)"])
def test_the_cluster_changes_no_byte(digits: Pooled, cluster: Any, strategy: str) -> None:
    options: dict[str, Any] = {"rounds": 2, "select": "uniform(C=0.7)"}
    here = fedalpha.run(digits, "mlp", strategy, workers=1, **options)
    there = fedalpha.run(digits, "mlp", strategy, engine="ray", ray_address=cluster.address, **options)
    assert without_times(there) == without_times(here)
    assert same_model(there, here)


def test_errors_of_clients_come_back(digits: Pooled, cluster: Any) -> None:
    def broken(output: Any, target: Any) -> Any:
        raise ZeroDivisionError("boom")

    task = Task(loss=broken, correct=None)
    with pytest.raises(RuntimeError, match="boom"):
        fedalpha.run(digits, "softmax", rounds=1, engine="ray", ray_address=cluster.address, task=task)


def test_functions_are_spread_in_order(cluster: Any) -> None:
    from fedalpha.engine.ray import spread

    assert list(spread(lambda x: x * x, range(6), cluster.address)) == [0, 1, 4, 9, 16, 25]


def test_a_killed_node_changes_nothing(digits: Pooled, cluster: Any) -> None:
    options: dict[str, Any] = {"rounds": 4, "update": "sgd(epochs=3, batch=8)"}
    here = fedalpha.run(digits, "mlp", "FedWorse(k=0.5)", workers=1, **options)
    there = fedalpha.run(
        digits,
        "mlp",
        "FedWorse(k=0.5)",
        engine="ray",
        ray_address=cluster.address,
        callbacks=[KillANode(cluster)],
        **options,
    )
    assert len(cluster.worker_nodes) == 0
    assert without_times(there) == without_times(here)
    assert same_model(there, here)


def test_no_cluster_is_named() -> None:
    with pytest.raises(RuntimeError, match=r"no Ray cluster answers at 127\.0\.0\.1:1"):
        fedalpha.run(fedalpha.federation("digits", clients=2), engine="ray", ray_address="127.0.0.1:1", rounds=1)
    with pytest.raises(ValueError, match="needs engine = ray"):
        fedalpha.run(fedalpha.federation("digits", clients=2), ray_address="127.0.0.1:1", rounds=1)
