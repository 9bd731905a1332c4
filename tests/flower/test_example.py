"""The example of the README, as a user runs it: its script, its nodes, its table; and the embedded engine's bytes."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fedalpha
from fedalpha.analysis.history import read

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"


@pytest.mark.slow
def test_the_example_runs_and_gives_the_embedded_engines_model(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(fedalpha.__file__).parents[1])}
    command = [sys.executable, str(EXAMPLE / "run.py"), "--nodes", "2", "--rounds", "1", "--folder", str(tmp_path)]
    found = subprocess.run(
        [*command, "--strategy", "FedWorse(k=1)"], env=environment, capture_output=True, text=True, timeout=1800
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert "FedWorse(k=1)" in found.stdout
    assert "everything is stopped" in found.stdout
    state = read(tmp_path / "result0")

    digits = fedalpha.federation("digits", partition="shards(size=30)", clients=2, seed=0)
    update = "sgd(lr=0.1, batch=32, epochs=1)"
    here = fedalpha.run(digits, "mlp", "FedWorse(k=1)", rounds=1, seed=0, update=update, engine="embedded(workers=1)")
    assert [row["alpha"] for row in state.rows] == [row["alpha"] for row in here.rows]
    assert [row["accuracy"] for row in state.rows] == [row["accuracy"] for row in here.rows]
    assert state.model.keys() == here.model.keys()
    for name, array in state.model.items():
        assert array.numpy().tobytes() == here.model[name].numpy().tobytes(), name


class Stub:
    """A deployment that trains nothing; its processes run elsewhere."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> Stub:
        return self

    def __exit__(self, *_: object) -> None: ...

    def run(self, config: dict[str, Any]) -> None:
        out = Path(config["out"])
        assert out.is_absolute()
        out.mkdir(parents=True)
        row = {"accuracy": 0.5, "bytes_up": 1000, "seconds": 1.0, "alpha": [1.0]}
        (out / "history.jsonl").write_text(json.dumps(row) + "\n")


def test_a_relative_folder_is_where_the_user_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server app has another working folder than the script."""
    monkeypatch.syspath_prepend(EXAMPLE)
    script = importlib.import_module("run")
    monkeypatch.setattr(script, "Deployment", Stub)
    monkeypatch.setattr(sys, "argv", ["run.py", "--folder", "somewhere", "--strategy", "FedAvg"])
    monkeypatch.chdir(tmp_path)
    script.main()
    assert (tmp_path / "somewhere" / "result0" / "history.jsonl").exists()
