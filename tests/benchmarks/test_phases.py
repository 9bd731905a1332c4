"""The table of a live round by where its losses come from."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.pages import shown
from benchmarks.phases.measure import VARIANTS, table

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_shows_what_is_stored() -> None:
    stored = json.loads((DOCS / "results/server/phases.json").read_text())
    assert list(stored["found"]) == list(VARIANTS)
    assert shown(DOCS / "deployment.md", "phases") == table(stored).strip()
