"""The Flower engine, on Flower's own simulation runtime: the embedded engine's bytes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import fedalpha
from fedalpha.analysis.history import read
from fedalpha.cli import app
from fedalpha.data import Pooled
from fedalpha.task import Task
from histories import same_model, without_times

pytestmark = pytest.mark.slow


def test_the_command_line_moves_a_run_onto_flower(tmp_path: Path) -> None:
    """With SCAFFOLD, whose clients keep state and whose server sends extras, and an upload with a memory."""
    command = ["run", "--clients", "8", "--rounds", "3", "--strategy", "FedWorse(k=0.5)", "--ratio", "0.7"]
    command += ["--update", "scaffold(lr=0.05)", "--combine", "clip(mean, C=0.5)"]
    command += ["--upload", "feedback(quantised(bits=4))"]
    for engine in ("embedded", "flower"):
        found = CliRunner().invoke(app, [*command, "--engine", engine, "--out", str(tmp_path / engine)])
        assert found.exit_code == 0, found.output
    here, there = read(tmp_path / "embedded"), read(tmp_path / "flower")
    assert without_times(there) == without_times(here)
    assert same_model(there, here)
    files = [(tmp_path / engine / "model.safetensors").read_bytes() for engine in ("embedded", "flower")]
    assert files[0] == files[1]


@pytest.mark.parametrize("server", ["synchronous(take=3)", "buffered(K=2, concurrency=4)"])
def test_simulated_time_passes_on_flower_as_well(digits: Pooled, server: str) -> None:
    options: dict[str, Any] = {
        "rounds": 3,
        "select": "uniform(count=4)",
        "clock": "flaky(lognormal(sigma=1), p=0.2)",
        "availability": "diurnal(period=9, share=0.7)",
        "server": server,
    }
    here, there = (
        fedalpha.run(digits, "softmax", "FedSoftWorse(T=0.2)", engine=engine, **options)
        for engine in ("embedded(workers=1)", "flower(workers=1)")
    )
    assert without_times(there) == without_times(here)
    assert same_model(there, here)


def test_errors_of_clients_come_back(digits: Pooled) -> None:
    here = os.getpid()

    def broken(output: torch.Tensor, target: torch.Tensor) -> Any:
        if os.getpid() != here:  # only where clients train
            raise ZeroDivisionError("boom")
        return output.sum()

    with pytest.raises(RuntimeError, match="boom"):
        fedalpha.run(digits.with_task(Task(loss=broken, correct=None)), "softmax", rounds=1, engine="flower")
