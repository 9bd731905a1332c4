"""The page of a comparison, from its folder alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedalpha.analysis.compared import Comparison
from fedalpha.analysis.history import History
from fedalpha.cli import app

HOSTILE = "FedAvg<script>"


def history(end: float) -> History:
    rows = [{"round": r, "accuracy": a, "loss": 1 - a, "seconds": 0.5} for r, a in enumerate((0.1, 0.7, end))]
    return History(rows, {})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    ends = {"FedAvg": 0.8, HOSTILE: 0.9}
    runs = {name: {seed: history(end + seed / 100) for seed in (0, 1)} for name, end in ends.items()}
    return Comparison(runs).save(tmp_path / "c")


def test_the_page_holds_the_table_the_curves_and_every_run(folder: Path) -> None:
    found = CliRunner().invoke(app, ["report", str(folder)])
    assert found.exit_code == 0, found.output
    page = (folder / "report.html").read_text()
    assert "2 strategies on 2 seeds" in page
    assert "FedAvg&lt;script&gt;" in page
    assert "<script>" not in page
    assert "data:image/png;base64," in page
    for cell in ("80.50", "90.50", "0.81", "0.91", "reference"):
        assert cell in page
    for run in folder.glob("*-seed*"):
        assert CliRunner().invoke(app, ["report", str(run)]).exit_code == 0


def test_damage_is_named(folder: Path) -> None:
    live = CliRunner().invoke(app, ["report", str(folder), "--live"])
    assert "has ended" in str(live.exception)
    (folder / "FedAvg-seed0" / "history.jsonl").write_text(json.dumps({"round": 0, "accuracy": "much"}) + "\n")
    found = CliRunner().invoke(app, ["report", str(folder)])
    assert isinstance(found.exception, ValueError)
