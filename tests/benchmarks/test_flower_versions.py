"""The table of Flower's versions."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.pages import shown
from flower.versions import store, table

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_shows_what_is_stored() -> None:
    stored = json.loads((DOCS / "results/server/flower.json").read_text())
    assert shown(DOCS / "deployment.md", "flower versions") == table(stored).strip()


def test_a_result_replaces_that_of_its_version_and_no_other(tmp_path: Path) -> None:
    found = {"dependencies": "its own", "installed": {"numpy": "2", "grpcio": "1"}}
    store(tmp_path, "1.9.0", {**found, "works": True, "reason": ""})
    store(tmp_path, "1.40.0", {**found, "works": True, "reason": ""})
    store(tmp_path, "1.9.0", {**found, "works": False, "reason": "it said no"})
    assert (tmp_path / "flower.md").read_text().splitlines()[2:] == [
        "| 1.40.0 | yes | its own | grpcio 1, numpy 2 |",
        "| 1.9.0 | no: it said no | its own | grpcio 1, numpy 2 |",
    ]
