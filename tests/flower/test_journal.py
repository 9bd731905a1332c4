"""The run folder of a live federation holds one run. Whole runs that go on are in test_strategy.py."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedalpha.flower.forms import NumpyForm
from fedalpha.flower.journal import Journal, digest
from fedalpha.flower.plug_points import Mean, Remote, Replace
from fedalpha.round import Algorithm, ServerState
from fedalpha.store import FormatError

CONFIG = {"strategy": "FedAvg", "seed": 0}
MODEL = {"w": np.zeros(2, dtype=np.float32)}


def start() -> ServerState:
    rules: dict[str, Any] = {"update": Remote(), "combine": Mean(), "apply": Replace()}
    return Algorithm(**rules).init(NumpyForm().broadcast(MODEL), None)


def state(round: int) -> ServerState:
    first = start()
    model = {"w": np.full(2, round, dtype=np.float32)}
    return ServerState(round, NumpyForm().broadcast(model), {}, {"seen": np.arange(round)}, {}, {}, first.clients)


def opened(folder: Path, config: Any = None, begun: str = "", new: bool = False) -> tuple[Journal, ServerState | None]:
    journal = Journal(folder)
    return journal, journal.open(config or CONFIG, start(), begun, NumpyForm().restore, new)


def played(folder: Path, *rounds: int) -> None:
    journal, _ = opened(folder)
    for round in rounds:
        journal.write({"round": round}, state(round), {"clients": {7: round}})
    journal.close(MODEL, complete=True)


def test_the_state_of_this_run_comes_back_and_the_folder_is_held(tmp_path: Path) -> None:
    played(tmp_path, 0, 1, 2)
    journal, found = opened(tmp_path)
    assert found is not None
    assert found.round == 2
    assert found.broadcast.parameters["w"].tolist() == [2, 2]
    assert found.weigh["seen"].tolist() == [0, 1]
    assert journal.beside["clients"] == {7: 2}
    assert journal.rows == [{"round": 0}, {"round": 1}, {"round": 2}]
    with pytest.raises(RuntimeError, match="in use by this process"):
        opened(tmp_path)
    journal.close()
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"config.json", "history.jsonl", "model.safetensors", "curves.png", "checkpoint", "lock"}


def test_a_damaged_generation_falls_back_to_the_one_before(tmp_path: Path) -> None:
    played(tmp_path, 0, 1, 2)
    max((tmp_path / "checkpoint").glob("*.safetensors")).write_bytes(b"nothing")
    journal, found = opened(tmp_path)
    assert found is not None
    assert found.round == 1
    assert journal.rows == [{"round": 0}, {"round": 1}]
    journal.close()


def test_a_refused_run_gives_the_folder_back(tmp_path: Path) -> None:
    played(tmp_path, 0, 1)
    with pytest.raises(ValueError, match="seed is 0 there and 1 here; clients is not set there and 5 here"):
        opened(tmp_path, {**CONFIG, "seed": 1, "clients": 5})
    with pytest.raises(RuntimeError, match=r"Call resume\(initial_arrays\) first .* or name another folder"):
        opened(tmp_path, new=True)
    journal, _ = opened(tmp_path)
    journal.close()


def test_a_folder_without_a_finished_round_is_a_new_run(tmp_path: Path) -> None:
    played(tmp_path, 0)
    journal, found = opened(tmp_path, new=True)
    assert found is not None
    assert found.round == 0
    assert journal.held
    journal.close()


def test_the_folder_of_an_older_version_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "server.safetensors").write_bytes(b"whatever")
    with pytest.raises(FormatError, match=r"server\.safetensors is of format 1"):
        opened(tmp_path)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ValueError, match="is a file; give a folder"):
        Journal(tmp_path / "file")


def test_other_initial_arrays_are_only_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    played(tmp_path, 0, 1)
    journal, found = opened(tmp_path, begun=digest(MODEL))
    journal.close()
    assert found is not None
    assert found.round == 1


def test_what_cannot_be_stored_is_named(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path)
    wrong = ServerState(1, NumpyForm().broadcast(MODEL), {}, {}, {}, {"lock": object()})
    with pytest.raises(TypeError, match=r"\['lock'\] is a object.*run without out="):
        journal.write({"round": 1}, wrong, {})
    journal.close()


def test_a_save_writes_the_new_rounds_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rounds were played: neither the time nor the size of a save grows."""
    written, real = [0], os.write

    def counted(descriptor: int, content: bytes) -> int:
        written[0] += len(content)
        return real(descriptor, content)

    monkeypatch.setattr(os, "write", counted)
    journal, _ = opened(tmp_path)
    costs = []
    for round in range(300):
        written[0] = 0
        row = {"round": round, "refused": "x" * 200}
        journal.write(row, ServerState(round, NumpyForm().broadcast(MODEL), {}, {}, {}, {}), {"clients": {}})
        costs.append(written[0])
    journal.close()
    assert max(costs[-2:]) < 1.1 * costs[12]
    assert len((tmp_path / "history.jsonl").read_text().splitlines()) == 300
