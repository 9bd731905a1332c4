"""A real SuperLink with TLS and node authentication, real SuperNodes, and what goes wrong with them."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedalpha.analysis.history import History, read
from fedalpha.store import Generations

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"
sys.path.insert(0, str(EXAMPLE))
from deployment import Deployment, descendants, stop  # noqa: E402
from keys import make_node_key  # noqa: E402

pytestmark = pytest.mark.slow

NODES = 3


@pytest.fixture(scope="module")
def flower(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("flower")
    with Deployment(folder, NODES, tls=True, app=Path(__file__).parent / "app") as deployment:
        yield deployment
        family = [p for s in [deployment.superlink, *deployment.supernodes] for p in [s.pid, *descendants(s.pid)]]
    time.sleep(1)
    assert not [id for id in family if alive(id)]


def alive(id: int) -> bool:
    try:
        return Path(f"/proc/{id}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def until(condition: Callable[[], Any], seconds: float = 300) -> Any:
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.2)
    return found


def rounds_in(folder: Path) -> int:
    found = Generations(folder / "checkpoint").load()
    assert found is not None
    return int(found[1][-1]["round"])


def expected(rounds: int) -> tuple[np.ndarray, list[list[float]]]:
    """FedWorse(k=2) by hand."""
    w, alphas = np.zeros(4, dtype=np.float32), []
    targets = np.array([[i, 1, -i, 0.5] for i in range(NODES)], dtype=np.float32)
    for _ in range(rounds):
        losses = ((w - targets) ** 2).sum(axis=1)
        alpha = np.where(np.argsort(np.argsort(-losses)) < 2, 0.5, 0.0)
        w = (alpha[:, None] * ((w + targets) / 2)).sum(axis=0).astype(np.float32)
        alphas.append(alpha.tolist())
    return w, alphas


def test_an_unregistered_node_is_refused(flower: Deployment) -> None:
    make_node_key(flower.folder / "certificates", "stranger")
    stranger = flower.start_supernode(NODES, key=flower.folder / "certificates" / "stranger")
    try:
        assert stranger.wait(180) != 0
    finally:
        stop(stranger)
    assert "305" in (flower.folder / f"supernode{NODES}.log").read_text() or stranger.returncode == 305 % 256


def test_the_server_app_killed_and_started_again_ends_with_the_same_bytes(flower: Deployment) -> None:
    """A normal run in two halves: killed in round 2, then continued from round 1's state."""
    save = flower.folder / "resumed"
    config = {"strategy": "FedWorse(k=2)", "rounds": 3, "save": str(save)}
    first = flower.submit(config)
    until(lambda: (save / "checkpoint").exists() and rounds_in(save) >= 1)
    for id in flower.server_apps():
        os.kill(id, signal.SIGKILL)
    until(lambda: not flower.server_apps())
    assert rounds_in(save) < 3
    flower.run(config)
    final: History = read(save)
    model, alphas = expected(3)
    assert final.model["w"].numpy().tobytes() == model.tobytes()
    assert [row["alpha"] for row in final.rows[1:]] == alphas
    assert [row["round"] for row in final.rows] == [0, 1, 2, 3]
    assert flower.status(first) != "finished:completed"


def test_a_supernode_killed_in_a_round_is_left_out(flower: Deployment) -> None:
    save, flag = flower.folder / "killed", flower.folder / "training"
    config = {"strategy": "FedAvg", "rounds": 1, "save": str(save), "slow": 1, "slow-round": 1, "flag": str(flag)}
    run = flower.submit({**config, "timeout": 40.0})
    until(flag.exists)
    stop(flower.supernodes[1], signal.SIGKILL)
    assert flower.wait(run) == "finished:completed"
    row = read(save).rows[1]
    assert row["alpha"] == [0.5, 0.0, 0.5]
    assert [refusal["client"] for refusal in row["refused"]] == [1]
    assert not row["kept"]
