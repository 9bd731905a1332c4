"""The tables of docs/async.md are those of the stored measures, and a cell is measured as the study would."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.asynchrony import STUDY, TIME, measured, tables
from benchmarks.pages import shown
from fedalpha.study import read_study

ROOT = Path(__file__).parents[2]


def test_the_page_shows_the_stored_measures() -> None:
    record = json.loads((ROOT / "docs" / "results" / "async" / "results.json").read_text())
    assert shown(ROOT / "docs" / "async.md", "measured") == tables(record).strip()
    study = read_study(STUDY)
    for cell in study.cells():
        assert str(cell.seed) in record[cell.case][cell.strategy]


@pytest.mark.parametrize("server", ["synchronous", "first 10 of 13", "buffered"])
def test_a_cell_gives_the_measures_that_are_stored(server: str) -> None:
    """FedSoftBetter never reaches 80 %, so its T_80 is the end of the run: a time that depends on draws alone."""
    record = json.loads((ROOT / "docs" / "results" / "async" / "results.json").read_text())
    cells = (c for c in read_study(STUDY).cells() if c.strategy.startswith("FedSoftBetter"))
    cell = next(c for c in cells if c.case.startswith(server))
    stored, found = record[cell.case][cell.strategy][str(cell.seed)], measured(cell)
    assert found.keys() == stored.keys()
    assert not stored[TIME][1]
    assert found[TIME] == [pytest.approx(stored[TIME][0], rel=1e-9), False]
