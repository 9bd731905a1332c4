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
from deployment import Deployment, descendants, stop  # noqa: E402
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
        assert stranger.wait(180) != 0
    finally:
        stop(stranger)
    assert "305" in (flower.folder / f"supernode{NODES}.log").read_text() or stranger.returncode == 305 % 256


def test_the_server_app_killed_and_started_again_ends_with_the_same_bytes(flower: Deployment) -> None:
    """Killed in round 2, then continued from round 1's state. It stops early, keeps its best model, has a shadow."""
    out, shadow = flower.folder / "resumed", "FedSoftWorse(T=0.2)"
    watched = {"stop": "loss <= 1.4", "keep": "best(loss)", "shadow": shadow}  # 1.77, 1.44, 1.36
    config = {"strategy": "FedWorse(k=2)", "rounds": 6, "out": str(out), **watched}
    first = flower.submit(config)
    until(lambda: rows(out))
    for id in flower.server_apps():
        os.kill(id, signal.SIGKILL)
    until(lambda: not flower.server_apps())
    assert len(rows(out)) < 3
    flower.run(config)
    model, alphas = expected(3)
    assert final(out).tobytes() == model.tobytes()
    assert [row["alpha"] for row in rows(out)] == alphas
    assert [row["round"] for row in rows(out)] == [1, 2, 3]
    assert ["stopped" in row for row in rows(out)] == [False, False, True]
    assert rows(out)[-1]["best_round"] == 3
    assert load_file(out / "best.safetensors")["w"].tobytes() == model.tobytes()
    for row in rows(out):
        assert row["shadow"][shadow]["alpha"] == weights(shadow, row["losses"]["before"], [10] * NODES).tolist()
    assert flower.status(first) != "finished:completed"


def test_hostile_nodes_that_are_registered_do_not_matter(flower: Deployment) -> None:
    """One claims another's id, one an id that is no number, one sends a model of another size."""
    configs = {3: "partition-id=0", 4: 'client-id="x"', 5: "partition-id=5 hostile=1"}
    hostile = []
    try:
        for place, config in configs.items():
            flower.register(make_node_key(flower.folder / "certificates", f"node{place}"), f"node{place}")
            hostile.append(flower.start_supernode(place, config=config))
        logs = [flower.folder / f"supernode{place}.log" for place in configs]
        until(lambda: all(log.exists() and "SuperNode ID" in log.read_text() for log in logs))
        out = flower.folder / "hostile"
        run = flower.submit({"strategy": "FedWorse(k=3)", "rounds": 1, "clients": 4, "out": str(out)})
        assert flower.wait(run) == "finished:completed"
    finally:
        for process in hostile:
            stop(process)
    (row,) = rows(out)
    assert row["cohort"] == [0, 1, 2, 5]
    assert row["nodes"] == {str(id): f"node{id}" for id in row["cohort"]}
    assert [(r["client"], "has shape (5000000,), expected (4,)" in r["reason"]) for r in row["refused"]] == [(5, True)]
    log = (flower.folder / f"run-{run}.log").read_text()
    assert log.count("node node3 is left out until it reports a usable client id: it claims client 0") == 1
    assert log.count("client-id in --node-config is 'x'") == 1


def test_a_supernode_killed_in_a_round_is_left_out(flower: Deployment) -> None:
    out, flag = flower.folder / "killed", flower.folder / "training"
    config = {"strategy": "FedAvg", "rounds": 1, "out": str(out), "slow": 1, "slow-round": 1, "flag": str(flag)}
    run = flower.submit({**config, "timeout": 40.0})
    until(flag.exists)
    stop(flower.supernodes[1], signal.SIGKILL)
    assert flower.wait(run) == "finished:completed"
    row = rows(out)[0]
    assert row["alpha"] == [0.5, 0.0, 0.5]
    assert [refusal["client"] for refusal in row["refused"]] == [1]
    assert not row["kept"]
