"""The benchmark of secure sums, at a tiny size, and the table of the page against the stored rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.pages import put, shown
from benchmarks.secure import cases, measure, run, table

DOCS = Path(__file__).parents[2] / "docs"


def test_costs_and_their_table(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Before.\n\n<!-- costs -->\nstale\n<!-- end of costs -->\n\nAfter.\n")
    rows = run(tmp_path, quick=True, page=page)
    assert json.loads((tmp_path / "results.json").read_text())["rows"] == rows
    assert (tmp_path / "table.md").read_text() == table(rows)
    assert shown(page, "costs") == table(rows).strip()
    assert page.read_text().startswith("Before.\n")
    assert page.read_text().endswith("\n\nAfter.\n")
    with pytest.raises(ValueError, match="has no lines <!-- others -->"):
        put(page, "others", "")
    for row in rows:
        words = 8 if row["form"].startswith("blind") else 4
        assert row["client_up"] > words * 1000 * (6 - row["lost"]) / 6
        assert row["error"] <= row["bound"]


def test_the_page_shows_the_stored_rows() -> None:
    stored = json.loads((DOCS / "results/secure/results.json").read_text())
    assert not stored["quick"]
    assert [(r["form"], r["clients"], r["parameters"], r["lost"]) for r in stored["rows"]] == list(cases(quick=False))
    text = shown(DOCS / "privacy.md", "costs")
    assert text == table(stored["rows"]).strip() == (DOCS / "results/secure/table.md").read_text().strip()


def test_bytes_do_not_depend_on_the_machine() -> None:
    """The stored bytes are those of the messages of today, for the cheapest stored case with and without losses."""
    stored = json.loads((DOCS / "results/secure/results.json").read_text())["rows"]
    row = next(r for r in stored if r["clients"] == 20 and r["parameters"] == 10_000)
    found = measure(row["form"], 20, 10_000, row["lost"])
    for name in ("client_up", "client_down", "neighbours"):
        assert found[name] == pytest.approx(row[name], rel=0.01)
