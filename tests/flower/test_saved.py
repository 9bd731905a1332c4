"""The folder of ``save``: whole generations, and one run in it. Whole runs that go on are in test_strategy.py."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord

from fedalpha.flower.saved import Saved, digest
from fedalpha.store import FormatError

IDENTITY = {"strategy": "FedAvg", "seed": 0}


def tree(round: int = 1, **values: Any) -> dict[str, Any]:
    rows = [{"round": r + 1} for r in range(round)]
    begun = digest({"w": np.zeros(2)})
    return {"identity": IDENTITY, "begun": begun, "round": round, "rows": rows, "metrics": {}, **values}


def stored_round(saved: Saved) -> int:
    found = saved.read()
    assert found is not None
    assert found == tree(found["round"])
    return int(found["round"])


def test_a_damaged_generation_does_not_replace_a_whole_one(tmp_path: Path) -> None:
    def damage() -> None:
        max((tmp_path / "checkpoint").glob("*.safetensors")).write_bytes(b"nothing")

    Saved(tmp_path).write(tree(1))
    Saved(tmp_path).write(tree(2))
    for _ in range(2):
        damage()
        saved = Saved(tmp_path)
        assert stored_round(saved) == 1
        saved.write(tree(2))
    saved.write(tree(3))
    damage()
    assert stored_round(Saved(tmp_path)) == 2


def test_the_state_of_this_run_comes_back_and_the_folder_is_held(tmp_path: Path) -> None:
    record = ArrayRecord({"b": Array(np.arange(3, dtype=np.int32)), "a": Array(np.array(2.5))})
    metrics = {"train": {1: {"loss": float("nan")}, 3: {"loss": 0.5, "all": [1, 2]}}, "server": {0: {"accuracy": 0.1}}}
    over = {"momentum": [record], "m": (np.float32(0.5), record)}
    Saved(tmp_path).write(tree(3, state={"w": np.arange(2.0), 7: [None, True]}, over=over, metrics=metrics))
    saved = Saved(tmp_path)
    found = saved.go_on(IDENTITY, digest({"w": np.zeros(2)}))
    assert found is not None
    assert found["round"] == 3
    assert found["rows"] == [{"round": 1}, {"round": 2}, {"round": 3}]
    assert str(found["metrics"]) == str({"server": metrics["server"], "train": metrics["train"]})
    assert found["state"]["w"].tolist() == [0.0, 1.0]
    assert found["state"][7] == [None, True]
    for back in (found["over"]["momentum"][0], found["over"]["m"][1]):
        assert isinstance(back, ArrayRecord)
        assert list(back) == ["b", "a"]
        for name in record:
            assert back[name].numpy().dtype == record[name].numpy().dtype
            assert back[name].numpy().tobytes() == record[name].numpy().tobytes()
            assert back[name].shape == record[name].shape
    with pytest.raises(RuntimeError, match="in use by this process"):
        Saved(tmp_path).hold()
    saved.release()


def test_a_refused_run_gives_the_folder_back(tmp_path: Path) -> None:
    Saved(tmp_path).write(tree())
    with pytest.raises(ValueError, match="seed is 0 there and 1 here; clients is not set there and 5 here"):
        Saved(tmp_path).go_on({**IDENTITY, "seed": 1, "clients": 5}, "")
    with pytest.raises(RuntimeError, match=r"Call resume\(initial_arrays\) first .* or name another folder"):
        Saved(tmp_path).begin()
    saved = Saved(tmp_path)
    saved.hold()
    saved.release()


def test_an_empty_folder_is_a_new_run(tmp_path: Path) -> None:
    saved = Saved(tmp_path / "new")
    assert saved.go_on(IDENTITY, "") is None
    saved.release()
    saved.begin()
    assert saved.held
    saved.release()


def test_the_folder_of_an_older_version_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "server.safetensors").write_bytes(b"whatever")
    with pytest.raises(FormatError, match=r"server\.safetensors is of format 1"):
        Saved(tmp_path).go_on(IDENTITY, "")
    with pytest.raises(RuntimeError, match="holds finished rounds"):
        Saved(tmp_path).begin()


def test_what_cannot_be_stored_is_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"state\['over'\]\['lock'\] is a object.*run without save="):
        Saved(tmp_path).write(tree(over={"lock": object()}))
    assert Saved(tmp_path).read() is None


def test_a_save_writes_the_new_rounds_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written, real = [0], os.write

    def counted(descriptor: int, content: bytes) -> int:
        written[0] += len(content)
        return real(descriptor, content)

    monkeypatch.setattr(os, "write", counted)
    rows = [{"round": r + 1, "refused": "x" * 200} for r in range(2_004)]
    metrics = {"train": {r + 1: {"loss": 1 / (r + 1)} for r in range(2_004)}}
    saved, costs = Saved(tmp_path), {}
    for round in (10, 11, 12, 2_000, 2_001, 2_002, 2_003):
        written[0] = 0
        saved.write(tree(round, rows=rows[:round], metrics=metrics))
        costs[round] = written[0]
    assert costs[2_000] > 50 * costs[12]
    assert max(costs[2_002], costs[2_003]) < 1.1 * costs[12]
    assert len((tmp_path / "history.jsonl").read_text().splitlines()) == 2_003
