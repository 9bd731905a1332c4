from __future__ import annotations

import csv
import re

import pytest
import typer
from rich.cells import cell_len
from typer.testing import CliRunner

from fedalpha.cli.theory import theory


def invoke(*arguments: str):
    app = typer.Typer()
    app.command()(theory)
    return CliRunner().invoke(app, list(arguments))


def test_study(tmp_path) -> None:
    options = ["--problem", "quadratics(seed=2, sigma=0.5)", "--strategy", "FedAvg", "--strategy", "FedBetter"]
    result = invoke(*options, "-E", "2", "--rounds", "20", "--replicas", "30", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    for word in ("Γ", "G²", "measured", "FedBetter", "own", "violations: none"):
        assert word in result.output
    assert (tmp_path / "bounds.png").stat().st_size > 20_000
    with open(tmp_path / "bounds.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["strategy"] for row in rows} == {"FedAvg", "FedBetter"}
    assert all(float(row["measured"]) <= float(row["roll-out bound"]) * 1.001 for row in rows)


def test_outside_the_theory_is_said() -> None:
    result = invoke("--strategy", "FedWorse(loss=after)", "--rounds", "5", "--replicas", "2")
    assert result.exit_code == 0, result.output
    assert "Outside the theory" in result.output


def test_verify(tmp_path) -> None:
    result = invoke("--verify", "3", "--strategy", "FedWorse", "--rounds", "4", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "violations: none" in result.output
    assert (tmp_path / "verification.csv").exists()


def test_unknown_problem_is_explained() -> None:
    result = invoke("--problem", "quadratic")
    assert isinstance(result.exception, ValueError)
    assert "did you mean 'quadratics'" in str(result.exception)


@pytest.mark.parametrize("columns", ["80", "100", "400"])
def test_no_column_is_cut(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that is wider than its terminal loses its last columns."""
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    result = invoke("--rounds", "2", "--replicas", "30")
    assert result.exit_code == 0, result.output
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in result.output.splitlines()]
    rows = [line for line in lines if line.startswith("│")]
    assert rows
    assert all(line.endswith("│") and cell_len(line) <= int(columns) for line in rows)
