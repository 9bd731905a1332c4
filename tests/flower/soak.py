"""Long checks on a real SuperLink: ``make soak``. Not part of the suite, because they take minutes.

On a busy machine Flower fails runs (its database is locked, tokens expire) and declares nodes offline whose heartbeat
is late. So a run that fails is submitted again, and one that must not lose a node is repeated.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedalpha
from fedalpha.analysis.history import read
from flower.real import NODES, expected, final, rows, until

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"
sys.path.insert(0, str(EXAMPLE))
from deployment import Deployment, stop  # noqa: E402
from keys import make_node_key  # noqa: E402


@pytest.fixture(scope="module")
def digits_on_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with Deployment(tmp_path_factory.mktemp("digits"), 4) as deployment:
        yield deployment


@pytest.fixture
def flower(tmp_path: Path) -> Iterator[Deployment]:
    with Deployment(tmp_path, NODES, tls=True, app=Path(__file__).parent / "app") as deployment:
        yield deployment


def finish(flower: Deployment, config: dict[str, Any], attempts: int = 4) -> None:
    """Submit a run until it is completed; each time it continues after its last finished round."""
    ends = []
    while "finished:completed" not in ends:
        assert len(ends) < attempts, ends
        ends.append(flower.wait(flower.submit(config)))


def undisturbed(flower: Deployment, config: dict[str, Any], attempts: int = 4) -> Path:
    """The folder of a completed run in which every client that was asked has delivered."""
    for attempt in range(attempts):
        out = flower.folder / f"{config['strategy']} {attempt}"
        finish(flower, {**config, "out": str(out)})
        if not any(row["refused"] for row in rows(out)):
            return out
    raise AssertionError(f"clients were lost in each of {attempts} runs: {[row['refused'] for row in rows(out)]}")


def refused(out: Path) -> set[int]:
    """The clients that were refused, but for those whose node was late with a heartbeat."""
    return {entry["client"] for row in rows(out) for entry in row["refused"] if "heartbeat" not in entry["reason"]}


@pytest.mark.parametrize(
    "rules",
    [
        {"strategy": "FedSoftWorse(T=0.2)", "select": "power_of_choice(C=0.5, d=0.75)"},
        {"strategy": "FedBetter(k=2)", "apply": "fedadam(lr=0.01)"},
        {"strategy": "FedAvg", "combine": "median"},
    ],
)
def test_real_nodes_give_the_bytes_of_a_simulation(digits_on_nodes: Deployment, rules: dict[str, str]) -> None:
    out = undisturbed(digits_on_nodes, {**rules, "rounds": 3, "clients": 4})
    federation = fedalpha.federation("digits", partition="shards(size=30)", clients=4, seed=0)
    update, engine = "sgd(lr=0.1, batch=32, epochs=1)", "embedded(workers=1, vectorise=false)"
    here = fedalpha.run(federation, "mlp", rounds=3, seed=0, update=update, engine=engine, **rules)
    there = read(out)
    for row, other in zip(there.rows, here.rows, strict=True):
        same = set(other) - {"seconds", "worst_client_accuracy", "client_accuracy_spread"}
        assert {name: row[name] for name in same} == {name: other[name] for name in same}
    for name, array in here.model.items():
        assert there.model[name].numpy().tobytes() == array.numpy().tobytes(), name


def test_the_superlink_killed_and_started_again_ends_with_the_same_bytes(flower: Deployment) -> None:
    """With its children; the nodes stay and connect again. The run is submitted once more with the same folder."""
    for attempt in range(4):
        out = flower.folder / f"link{attempt}"
        config = {"strategy": "FedWorse(k=2)", "rounds": 4, "out": str(out)}
        flower.submit(config)
        until(lambda out=out: rows(out))
        stop(flower.superlink, signal.SIGKILL)
        assert len(rows(out)) < 4
        time.sleep(5)
        flower.start_superlink()
        finish(flower, config)
        if not any(row["refused"] for row in rows(out)):
            break
    model, alphas = expected(4)
    assert final(out).tobytes() == model.tobytes()
    assert [row["alpha"] for row in rows(out)] == alphas


def test_a_node_that_was_killed_comes_back_as_the_same_client_and_nobody_takes_its_place(flower: Deployment) -> None:
    """While it is away, another registered node claims its id and is refused, because its key is another one."""
    out = flower.folder / "away"
    config = {"strategy": "FedWorse(k=2)", "out": str(out), "clients": 2}
    finish(flower, {**config, "rounds": 1})
    stop(flower.supernodes[0], signal.SIGKILL)
    flower.register(make_node_key(flower.folder / "certificates", "impostor"), "impostor")
    impostor = flower.start_supernode(9, key=flower.folder / "certificates" / "impostor", config="partition-id=0")
    time.sleep(75)  # the heartbeat of the first node lapses
    finish(flower, {**config, "rounds": 2})
    stop(impostor)
    assert rows(out)[1]["cohort"] == [1, 2]
    run = flower.submit({**config, "rounds": 3, "clients": 3, "wait": 1800.0})

    def completed() -> bool:
        if flower.supernodes[0].poll() is not None:  # refused until its heartbeat has lapsed: supervise with retry
            flower.supernodes[0] = flower.start_supernode(0)
            time.sleep(10)
        return flower.status(run) == "finished:completed"

    until(completed)
    assert rows(out)[2]["cohort"] == [0, 1, 2]
    assert rows(out)[2]["nodes"]["0"] == "node0"


def test_a_server_that_does_not_wait_goes_on_without_the_slow_node_and_after_it_was_started_again(
    flower: Deployment,
) -> None:
    """Node 0 trains until the first server app has ended; the others make versions meanwhile."""
    out = flower.folder / "buffered"
    config = {
        "strategy": "stale(FedAvg, polynomial(a=0.5))",
        "server": "buffered(K=2, concurrency=3)",
        "out": str(out),
        "slow": 0,
        "slow-round": 1,
        "flag": str(flower.folder / "slow"),
        "timeout": 7200.0,
    }
    finish(flower, {**config, "rounds": 4})
    assert (flower.folder / "slow").exists()
    first = rows(out)
    assert [row["cohort"] for row in first] == [[1, 2]] * 4
    assert all(row["staleness"] == [0, 0] for row in first)
    (flower.folder / "slow.over").touch()
    finish(flower, {**config, "rounds": 6})
    assert rows(out)[:4] == first
    assert len(rows(out)) == 6
    assert all(len(row["cohort"]) == 2 for row in rows(out))
    assert not refused(out)  # node 0 was not given up, either
    assert np.isfinite(final(out)).all()


def test_one_cohort_in_training_is_the_synchronous_server_to_the_bit_on_real_nodes(flower: Deployment) -> None:
    config = {"strategy": "FedWorse(k=2)", "server": "buffered(K=3, concurrency=3)", "rounds": 3}
    out = undisturbed(flower, config)
    model, alphas = expected(3)
    assert final(out).tobytes() == model.tobytes()
    assert [row["alpha"] for row in rows(out)] == alphas


def test_a_buffered_server_app_killed_with_clients_in_training_goes_on_after_its_last_version(
    flower: Deployment,
) -> None:
    """SIGKILL to the server app while node 0 trains. Then node 1 is killed, too, and two nodes are enough."""
    out = flower.folder / "killed"
    config = {
        "strategy": "stale(FedAvg, polynomial(a=0.5))",
        "server": "buffered(K=2, concurrency=3)",
        "out": str(out),
        "slow": 0,
        "slow-round": 1,
        "flag": str(flower.folder / "slow"),
        "timeout": 7200.0,
        "rounds": 40,
    }
    flower.submit(config)
    until(lambda: (flower.folder / "slow").exists() and len(rows(out)) >= 2)
    for app in flower.server_apps():
        os.kill(app, signal.SIGKILL)
    until(lambda: not flower.server_apps())
    first = rows(out)
    assert 2 <= len(first) < 40
    again = flower.submit({**config, "rounds": len(first) + 6, "clients": 2})
    until(lambda: len(rows(out)) > len(first))
    stop(flower.supernodes[1], signal.SIGKILL)
    (flower.folder / "slow.over").touch()
    assert flower.wait(again) == "finished:completed"
    assert rows(out)[: len(first)] == first
    assert len(rows(out)) == len(first) + 6
    assert refused(out) <= {1}
    assert np.isfinite(final(out)).all()
