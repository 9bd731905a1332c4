"""A real SuperLink with TLS and node authentication, real SuperNodes, and what goes wrong with them."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from fedalpha import weights
from flower.real import NODES, alive, expected, final, rows, until

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"
sys.path.insert(0, str(EXAMPLE))
from deployment import NAME, Deployment, descendants, stop  # noqa: E402
from keys import make_node_key  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def flower(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("flower")
    with Deployment(folder, NODES, tls=True, app=Path(__file__).parent / "app") as deployment:
        yield deployment
        family = [p for s in [deployment.superlink, *deployment.supernodes] for p in [s.pid, *descendants(s.pid)]]
    time.sleep(1)
    assert not [id for id in family if alive(id)]


def test_an_unregistered_node_is_refused(flower: Deployment) -> None:
    make_node_key(flower.folder / "certificates", "stranger")
    stranger = flower.start_supernode(NODES, key=flower.folder / "certificates" / "stranger")
    try:
        assert stranger.wait(1800) != 0
    finally:
        stop(stranger)
    assert "305" in (flower.folder / f"supernode{NODES}.log").read_text() or stranger.returncode == 305 % 256


def test_the_server_app_killed_and_started_again_ends_with_the_same_bytes(flower: Deployment) -> None:
    """Killed in round 2, then continued from round 1's state. It stops early, keeps its best model, has a shadow."""
    out, shadow = flower.folder / "resumed", "FedSoftWorse(T=0.2)"
    watched = {"stop": "loss <= 1.5", "keep": "best(loss)", "shadow": shadow}  # 1.77, 1.44, 1.36
    config = {"strategy": "FedWorse(k=2)", "rounds": 6, "out": str(out), **watched}
    first = flower.submit(config)
    until(lambda: rows(out))
    for id in flower.server_apps():
        os.kill(id, signal.SIGKILL)
    until(lambda: not flower.server_apps())
    assert len(rows(out)) < 2
    flower.flwr("stop", first, NAME)  # Flower takes most of a minute to notice by itself
    flower.run(config)
    model, alphas = expected(2)
    assert final(out).tobytes() == model.tobytes()
    assert [row["alpha"] for row in rows(out)] == alphas
    assert [row["round"] for row in rows(out)] == [1, 2]
    assert ["stopped" in row for row in rows(out)] == [False, True]
    assert rows(out)[-1]["best_round"] == 2
    assert load_file(out / "best.safetensors")["w"].tobytes() == model.tobytes()
    for row in rows(out):
        assert row["shadow"][shadow]["alpha"] == weights(shadow, row["losses"]["before"], [10] * NODES).tolist()
    assert flower.status(first) != "finished:completed"


def test_hostile_nodes_do_not_matter_and_one_that_is_killed_is_left_out(flower: Deployment) -> None:
    """One claims another's id, one an id that is no number, one sends a model of another size, one dies in training.

    The time-out follows the machine: a round of the run before took both of its phases in a quarter of it.
    """
    configs = {3: "partition-id=0", 4: 'client-id="x"', 5: "partition-id=5 hostile=1"}
    usual = max(row["seconds"] for row in rows(flower.folder / "resumed"))
    hostile = []
    try:
        for place, config in configs.items():
            flower.register(make_node_key(flower.folder / "certificates", f"node{place}"), f"node{place}")
            hostile.append(flower.start_supernode(place, config=config))
        logs = [flower.folder / f"supernode{place}.log" for place in configs]
        until(lambda: all(log.exists() and "SuperNode ID" in log.read_text() for log in logs))
        out, flag = flower.folder / "hostile", flower.folder / "training"
        settings = {"strategy": "FedWorse(k=4)", "rounds": 1, "clients": 4, "out": str(out), "slow": 1, "slow-round": 1}
        run = flower.submit({**settings, "flag": str(flag), "timeout": max(10.0, 4 * usual)})
        until(flag.exists)
        stop(flower.supernodes[1], signal.SIGKILL)
        assert flower.wait(run) == "finished:completed"
    finally:
        for process in hostile:
            stop(process)
    (row,) = rows(out)
    assert row["cohort"] == [0, 1, 2, 5]
    assert row["alpha"] == [0.5, 0.0, 0.5, 0.0]
    assert not row["kept"]
    assert row["nodes"] == {str(id): f"node{id}" for id in row["cohort"]}
    refused = {refusal["client"]: refusal["reason"] for refusal in row["refused"]}
    assert refused.keys() == {1, 5}
    assert "has shape (5000000,), expected (4,)" in refused[5]
    log = (flower.folder / f"run-{run}.log").read_text()
    assert log.count("node node3 is left out until it reports a usable client id: it claims client 0") == 1
    assert log.count("client-id in --node-config is 'x'") == 1
