"""docs/round.md names files, functions and columns that exist, and the round that it follows fits on a screen."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fedalpha
from fedalpha.analysis.columns import columns
from fedalpha.cli import app
from fedalpha.round import advance

PAGE = (Path(__file__).parents[2] / "docs" / "round.md").read_text()
PACKAGE = Path(fedalpha.__file__).parent


def test_files_exist_and_define_what_the_page_says() -> None:
    named = re.findall(r"`([a-z_/]+\.py)`(?:: ((?:`[\w.]+`(?:, )?)+))?", PAGE)
    assert len(named) > 20
    for file, names in named:
        place = PACKAGE / file if "/" in file else PACKAGE / "analysis" / "columns" / file
        text = (place if place.exists() else PACKAGE.parents[1] / file).read_text()
        for name in re.findall(r"`([\w.]+)`", names):
            assert re.search(rf"(def|class) {name.split('.')[-1]}\b", text), (file, name)


def test_the_round_fits_on_a_screen_and_follows_the_order_of_the_algorithm() -> None:
    lines = inspect.getsource(advance).splitlines()
    assert len(lines) <= 60
    steps = re.findall(r"# (\d)\. (\w+)", "\n".join(lines))
    assert steps == [("1", "Select"), ("2", "Ask"), ("3", "Weigh"), ("4", "Combine")]


def test_columns_exist() -> None:
    known = {column.name for column in columns()}
    table = PAGE.partition("| columns | meaning |")[2].partition("\n\n")[0]
    shown = [name for line in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split("|")[1])]
    assert len(shown) > 20
    assert set(shown) <= known


def test_the_row_is_that_of_the_command(tmp_path: Path) -> None:
    shown = json.loads(PAGE.partition("```json")[2].partition("```")[0])
    command = ["run", "--clients", "3", "--rounds", "1", "--strategy", "FedSoftWorse(T=0.2)", "--out", str(tmp_path)]
    CliRunner().invoke(app, command, catch_exceptions=False)
    found = json.loads((tmp_path / "history.jsonl").read_text().splitlines()[-1])
    assert list(shown) == [name for name in found if name in shown]
    for name, value in shown.items():
        parts = value if isinstance(value, dict) else {"": value}
        for kind, number in parts.items():
            if number is not None and name != "seconds":
                own = found[name][kind] if kind else found[name]
                assert own == pytest.approx(number, rel=0.01, abs=0.005), (name, kind)
