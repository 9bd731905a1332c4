"""The benchmark of secure sums, at a tiny size."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.secure import run


def test_costs_and_their_table(tmp_path: Path) -> None:
    rows = run(tmp_path, quick=True)
    assert json.loads((tmp_path / "results.json").read_text())["rows"] == rows
    assert (tmp_path / "table.md").read_text().count("\n") == 2 + len(rows)
    for row in rows:
        assert row["client_up"] > 4 * 1000 * (6 - row["lost"]) / 6
        assert row["error"] <= row["bound"]
