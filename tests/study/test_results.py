"""What the repository stores: every study is whole, light, and drawn where a page shows it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from fedalpha.study import load_study, read_study

pytest.importorskip("pyarrow")
ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
STUDIES = sorted(path.parent for path in RESULTS.glob("*/study.json"))


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
