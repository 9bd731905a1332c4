"""The Ray engine on a real cluster of two nodes: the embedded engine's bytes, also when a node is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fedalpha
from fedalpha.data import Pooled
from fedalpha.runs.callbacks import Callback
from fedalpha.runs.settings import Settings
from fedalpha.store import Generations
from fedalpha.study import CellError, run_study, study
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
    """While round 2 is under way, the node that does not hold the driver is killed."""

    def __init__(self, cluster: Any) -> None:
        victim = next(iter(cluster.worker_nodes))
        self.killer = threading.Timer(0.2, lambda: cluster.remove_node(victim, allow_graceful=False))

    def on_round(self, row: dict[str, Any], state: Any) -> bool | None:
        if row["round"] == 1:
            self.killer.start()
        return None


WAITING = {
    "clock": "flaky(lognormal(sigma=1), p=0.2)",
    "availability": "diurnal(period=9, share=0.7)",
    "server": "synchronous(take=4)",
    "deadline": 4.0,
}
NOT_WAITING = {
    "clock": "jitter(lognormal(sigma=1), sigma=0.2)",
    "availability": "diurnal(period=9, share=0.7)",
    "server": "buffered(K=2, concurrency=5)",
}


@pytest.mark.parametrize(
    ("strategy", "update", "pace"),
    [
        ("FedSoftWorse(T=0.2)", "sgd", {"combine": "clip(mean, C=0.5)"}),
        ("FedSoftBetter(T=0.2, loss=after)", "scaffold(lr=0.05)", {"upload": "feedback(quantised(bits=4))"}),
        ("FedSoftWorse(T=0.2)", "sgd", WAITING),
        ("stale(FedSoftWorse(T=0.2), polynomial(a=0.5))", "scaffold(lr=0.05)", {**NOT_WAITING, "rounds": 4}),
    ],
)
def test_the_cluster_changes_no_byte(
    digits: Pooled, cluster: Any, strategy: str, update: str, pace: dict[str, Any]
) -> None:
    options: dict[str, Any] = {"rounds": 2, "select": "uniform(C=0.7)", "update": update, **pace}
    here = fedalpha.run(digits, "mlp", strategy, engine="embedded(workers=1)", **options)
    there = fedalpha.run(digits, "mlp", strategy, engine=f"ray(address={cluster.address!r})", **options)
    assert without_times(there) == without_times(here)
    assert same_model(there, here)


def test_a_driver_that_is_killed_with_clients_in_training_is_resumed_to_the_same_bytes(
    digits: Pooled, cluster: Any, tmp_path: Path
) -> None:
    """The driver is a process of its own, killed before round 3 is saved; the run is resumed on the cluster."""
    script = tmp_path / "driver.py"
    script.write_text(
        "import os, signal, sys\n"
        "import fedalpha\n"
        "from fedalpha.runs.callbacks import Callback\n\n\n"
        "class Killer(Callback):\n"
        "    def on_round(self, row, state):\n"
        "        if row['round'] == 3:\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n\n\n"
        "digits = fedalpha.federation('digits', partition='shards(size=30)', clients=8)\n"
        f"fedalpha.run(digits, 'softmax', rounds=5, engine={f'ray(address={cluster.address!r})'!r}, "
        f"out={str(tmp_path / 'run')!r}, callbacks=[Killer()], **{NOT_WAITING!r})\n"
    )
    ended = subprocess.run([sys.executable, str(script)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert ended.returncode == -signal.SIGKILL
    found = Generations(tmp_path / "run" / "checkpoint").load()
    assert found is not None
    assert found[0]["round"] == 2
    assert found[0]["clock"]["flights"]
    options: dict[str, Any] = {"rounds": 5, **NOT_WAITING}
    federation = fedalpha.federation("digits", partition="shards(size=30)", clients=8)
    here = fedalpha.run(federation, "softmax", engine="embedded(workers=1)", **options)
    there = fedalpha.run(
        federation, "softmax", engine=f"ray(address={cluster.address!r})", out=tmp_path / "run", **options
    )
    assert without_times(there) == without_times(here)
    assert same_model(there, here)


def test_errors_of_clients_come_back(digits: Pooled, cluster: Any) -> None:
    here = os.getpid()

    def broken(output: Any, target: Any) -> Any:
        if os.getpid() != here:  # only where clients train
            raise ZeroDivisionError("boom")
        return output.sum()

    task = Task(loss=broken, correct=None)
    with pytest.raises(RuntimeError, match="boom"):
        fedalpha.run(digits.with_task(task), "softmax", rounds=1, engine=f"ray(address={cluster.address!r})")


def test_the_cells_of_a_study_are_spread(cluster: Any, tmp_path: Path) -> None:
    rules = tmp_path / "rules.py"
    rules.write_text(
        "from fedalpha.strategies import STRATEGIES, FedAvg\n\n\n"
        '@STRATEGIES.register(formula="p")\n'
        "class Halved(FedAvg):\n"
        '    """FedAvg by another name."""\n'
    )
    values = {
        "name": "small",
        "strategies": ["FedAvg", "FedSoftBetter(T=0.2)", "FedAvgSoftBetter(at=1)", "Halved"],
        "seeds": 1,
        "settings": {"dataset": "digits", "clients": 4, "model": "softmax", "rounds": 2, "plugin": str(rules)},
    }
    stores = [
        run_study(study(values), tmp_path / "here", jobs=1),
        run_study(study(values), tmp_path / "there", ray_address=cluster.address),
    ]
    assert all(store.has(cell) for store in stores for cell in study(values).cells())
    assert stores[0].packed.read_bytes() == stores[1].packed.read_bytes()
    broken = {**values, "strategies": ["FedAvg"], "seeds": 1, "settings": {"model": "cnn", "rounds": 1}}
    with pytest.raises(CellError, match="10×10"):
        run_study(study(broken), tmp_path / "broken", ray_address=cluster.address)


def test_a_killed_node_changes_nothing(digits: Pooled, cluster: Any) -> None:
    options: dict[str, Any] = {"rounds": 4, "update": "sgd(epochs=20, batch=8)"}
    here = fedalpha.run(digits, "mlp", "FedWorse(k=0.5)", engine="embedded(workers=1)", **options)
    kill = KillANode(cluster)
    there = fedalpha.run(
        digits,
        "mlp",
        "FedWorse(k=0.5)",
        engine=f"ray(address={cluster.address!r})",
        callbacks=[kill],
        **options,
    )
    kill.killer.join()
    assert len(cluster.worker_nodes) == 0
    assert without_times(there) == without_times(here)
    assert same_model(there, here)


def test_no_cluster_is_named() -> None:
    with pytest.raises(RuntimeError, match=r"no Ray cluster answers at 127\.0\.0\.1:1"):
        fedalpha.run(fedalpha.federation("digits", clients=2), engine="ray(address='127.0.0.1:1')", rounds=1)
    with pytest.raises(ValueError, match="needs engine = ray"):
        Settings(ray_address="127.0.0.1:1").place()
