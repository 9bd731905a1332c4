"""The benchmark of a live server, at a small size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.pages import shown
from benchmarks.server import measure, table

DOCS = Path(__file__).parents[2] / "docs"

pytestmark = pytest.mark.slow


def test_both_tables_are_written(tmp_path: Path) -> None:
    found = measure(tmp_path, 1, 267_000, (2,), (2,))
    assert found["aggregation"][0]["ratio"] > 0
    assert found["aggregation"][0]["extra_models"]["FedAlpha"] > 0
    assert found["streaming"][0]["peak_models"] >= 0
    assert (tmp_path / "server.md").read_text().count("| 2 |") == 2


def test_the_page_shows_what_is_stored() -> None:
    stored = json.loads((DOCS / "results/server/server.json").read_text())
    assert shown(DOCS / "deployment.md", "server") == table(stored).strip()
    assert [row["clients"] for row in stored["aggregation"] + stored["streaming"]] == [10, 30, 4, 16, 64]
    assert stored["values"] == 25_600_000
    assert stored["turns"] >= 7
