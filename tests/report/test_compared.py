"""The page of a comparison, from its folder alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedalpha import compare, federation
from fedalpha.analysis.compared import Comparison
from fedalpha.analysis.history import History
from fedalpha.cli import app
from fedalpha.data import Federation
from fedalpha.store import LinkError

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


def test_the_folder_of_a_run_that_is_a_link_is_not_read(folder: Path) -> None:
    """It would show a run elsewhere as one of this comparison."""
    (folder / "FedAvg-seed0").rename(folder.parent / "mine")
    (folder / "FedAvg-seed0").symlink_to(folder.parent / "mine")
    with pytest.raises(LinkError, match="FedAvg-seed0 is a link"):
        Comparison.load(folder)


def test_nothing_is_written_through_the_folder_of_a_run_that_is_a_link(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "FedAvg-seed0").symlink_to(tmp_path / "mine")
    data = federation("digits", clients=2)
    with pytest.raises(LinkError, match="FedAvg-seed0 is a link"):
        compare(data, ["FedAvg"], seeds=1, rounds=0, model="softmax", out=tmp_path / "c")
    assert not list((tmp_path / "mine").iterdir())


def test_a_record_of_too_many_runs_is_refused(folder: Path) -> None:
    """Looking for 10^10 folders takes days."""
    record = json.loads((folder / "comparison.json").read_text())
    (folder / "comparison.json").write_text(
        json.dumps(record | {"seeds": list(range(10**5)), "strategies": ["a"] * 10**5})
    )
    with pytest.raises(ValueError, match=r"comparison.json is damaged"):
        Comparison.load(folder)


def test_damage_is_named(folder: Path) -> None:
    live = CliRunner().invoke(app, ["report", str(folder), "--live"])
    assert "has ended" in str(live.exception)
    (folder / "FedAvg-seed0" / "history.jsonl").write_text(json.dumps({"round": 0, "accuracy": "much"}) + "\n")
    found = CliRunner().invoke(app, ["report", str(folder)])
    assert isinstance(found.exception, ValueError)


def test_the_pages_say_what_was_run(tmp_path: Path) -> None:
    def data(seed: int) -> Federation:
        return federation("digits", partition="shards(size=100)", clients=3, seed=seed)

    compare(data, ["FedAvg"], seeds=[4], rounds=0, model="softmax", out=tmp_path)
    (run,) = tmp_path.glob("*-seed4")
    said = "digits, shards(size=100), 3 clients, softmax, sgd(lr=0.1, batch=16, epochs=1)"
    for folder, facts in ((tmp_path, f"<p>{said}.</p>"), (run, f"finished, {said}, seed 4.</p>")):
        assert CliRunner().invoke(app, ["report", str(folder)]).exit_code == 0
        assert facts in (folder / "report.html").read_text()
