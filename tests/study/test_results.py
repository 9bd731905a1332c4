"""What the repository stores: every study is whole, light, and drawn where a page shows it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fedalpha.study import Cell, load_study, read_study, tune
from fedalpha.study.crew import Crew

read_table = pytest.importorskip("pyarrow.parquet").read_table
ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
TUNED = sorted(path.parent for path in RESULTS.glob("*/tune.json"))
STUDIES = sorted(path.parent for path in RESULTS.glob("*/study.json") if path.parent not in TUNED)


@pytest.fixture(scope="module")
def tracked() -> list[Path]:
    """The tracked files that are there."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


@pytest.mark.parametrize("folder", STUDIES, ids=lambda folder: folder.name)
def test_a_stored_study_is_finished_and_can_be_extended(folder: Path) -> None:
    """Its text still means the stored cells: the same command runs nothing, more seeds run only the new ones."""
    _, cells, store = load_study(folder)
    planned = {cell.key for cell in read_study(folder).cells()}
    assert planned == {cell.key for cell in cells}
    assert all(store.has(cell) for cell in cells)
    assert store.strangers(cells) == 0
    assert not store.cells.exists()
    for cell in cells:
        assert store.get(cell.key).about["config"] == cell.config


@pytest.mark.parametrize("folder", TUNED, ids=lambda folder: folder.name)
def test_a_stored_study_that_tuned_is_replayed_from_its_cells(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command runs no cell, takes the same decisions and writes the same files.

    Figures may differ in their last digits, as another processor's exponential function does, and the bytes of Parquet
    in the version of its writer.
    """

    def runs(self: Crew, cell: Cell) -> None:
        raise AssertionError(f"{cell.label} is not stored")

    monkeypatch.setattr(Crew, "launch", runs)
    copy = tmp_path / folder.name
    shutil.copytree(folder, copy)
    tune(read_study(copy), copy, text=(folder / "study.toml").read_text())
    for name in ("answer.md", "study.json", "study.toml"):
        assert (copy / name).read_bytes() == (folder / name).read_bytes()
    found, expected = (_figures(place / "tune.json") for place in (copy, folder))
    assert found == expected
    assert read_table(copy / "cells.parquet").equals(read_table(folder / "cells.parquet"))


def _figures(path: Path) -> Any:
    return json.loads(path.read_text(), parse_float=lambda text: f"{float(text):.9g}")


def test_the_checkout_is_light(tracked: list[Path]) -> None:
    size = {path: path.stat().st_size for path in tracked}
    assert sum(size.values()) <= 15e6
    assert sum(n for path, n in size.items() if path.is_relative_to(RESULTS)) <= 8e6


def test_stored_figures_are_those_that_a_page_shows(tracked: list[Path]) -> None:
    shown = set()
    for page in (path for path in tracked if path.suffix == ".md"):
        links = re.findall(r"\]\(([^)\s#]+)", page.read_text())
        shown |= {(page.parent / link).resolve() for link in links if "://" not in link}
    stored = {path for path in tracked if path.is_relative_to(RESULTS) and path.suffix in (".png", ".svg")}
    assert stored <= shown
    assert {path for path in shown if path.suffix in (".png", ".svg")} <= set(tracked)
