"""Tables of studies inside a Markdown page."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedalpha.report.pages import fill_page, filled
from report.test_claims import claim, folder

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [page for page in sorted(DOCS.glob("*.md")) if "\n<!-- fedalpha " in page.read_text()]


@pytest.fixture
def page(tmp_path: Path) -> Path:
    finals = {"FedAvg": [0.5, 0.52, 0.51], "FedWorse": [0.7, 0.73, 0.71]}
    folder(tmp_path / "results" / "x", finals, [claim("FedWorse", "FedAvg")])
    file = tmp_path / "page.md"
    file.write_text(
        "Before.\n\n<!-- fedalpha results/x: accuracy@1, R_60 -->\nstale\n<!-- end -->\n\nBetween.\n\n"
        "<!-- fedalpha results/x: claims -->\n<!-- end -->\n\nAfter.\n"
    )
    return file


def test_tables_are_written_anew_and_the_rest_stays(page: Path) -> None:
    assert fill_page(page) == 2
    text = page.read_text()
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert sum("| FedWorse |" in row for row in rows) == 2
    assert any("FedWorse wins" in row and row.endswith("holds |") for row in rows)
    assert "71.33 ± 3.79" in text
    assert "stale" not in text
    assert [line for line in text.splitlines() if line.endswith(".")] == ["Before.", "Between.", "After."]
    assert filled(text, page.parent) == text


@pytest.mark.parametrize(
    ("marker", "named"),
    [
        ("<!-- fedalpha results/y: R_60 -->\n<!-- end -->", "no study.json"),
        ("<!-- fedalpha results/x: acuracy -->\n<!-- end -->", "did you mean 'accuracy'"),
        ("<!-- fedalpha results/x: accuracy -->\n| table |", "<!-- end -->"),
        ("<!-- fedalpha results/x -->\n<!-- end -->", "MEASURE"),
    ],
)
def test_a_wrong_marker_is_named_and_the_page_kept(page: Path, marker: str, named: str) -> None:
    page.write_text(marker + "\n")
    with pytest.raises(ValueError, match=named):
        fill_page(page)
    assert page.read_text() == marker + "\n"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_tables_of_the_documents_are_those_of_the_stored_rows(page: Path) -> None:
    text = page.read_text()
    assert filled(text, page.parent) == text
