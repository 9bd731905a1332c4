"""The tables of docs/async.md are those of the stored measures, and a cell is measured as the study would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.asynchrony import STUDY, TIME, asked, measured, stored, tables
from benchmarks.pages import shown
from fedalpha.study import read_study

ROOT = Path(__file__).parents[2]
RECORD: Any = json.loads((ROOT / "docs" / "results" / "async" / "results.json").read_text())


def test_the_page_shows_the_stored_measures() -> None:
    assert shown(ROOT / "docs" / "async.md", "measured") == tables(RECORD).strip()


def test_every_cell_of_the_study_is_stored_under_the_hash_of_its_settings() -> None:
    cells = [cell for cell in read_study(STUDY).cells() if asked(cell.case, cell.strategy)]
    assert all(stored(RECORD, cell) for cell in cells)
    assert sum(len(seeds) for rules in RECORD.values() for seeds in rules.values()) == len(cells)
    assert not any(stored(RECORD, cell) for cell in read_study(STUDY).with_changes(seeds=None, rounds=7).cells())


@pytest.mark.parametrize("server", ["synchronous", "first 10 of 13", "buffered"])
def test_a_cell_gives_the_measures_that_are_stored(server: str) -> None:
    """FedSoftBetter never reaches 80 %, so its T_80 is the end of the run: a time that depends on draws alone."""
    cells = (c for c in read_study(STUDY).cells() if c.strategy.startswith("FedSoftBetter"))
    cell = next(c for c in cells if c.case.startswith(server))
    known, found = RECORD[cell.case][cell.strategy][str(cell.seed)], measured(cell)
    assert found.keys() == known.keys()
    assert not known[TIME][1]
    assert found[TIME] == [pytest.approx(known[TIME][0], rel=1e-9), False]
