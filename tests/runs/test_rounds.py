"""A few rounds that were stored before the round became a protocol: the same decisions, models up to rounding.

Cohorts, refusals, steps and bytes are whole numbers and equal everywhere. Losses, and weights that depend on them,
differ in their last bits from one processor to another; three rounds enlarge that to far less than the tolerances.
``python -m benchmarks bytes`` compares two commits on one machine to the last bit.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedalpha.cli import app

STORED = json.loads((Path(__file__).parent / "rounds.json").read_text())


@pytest.mark.parametrize("name", STORED)
def test_stored_rounds_are_played_again(name: str, tmp_path: Path) -> None:
    command = ["run", *STORED[name]["options"], "--workers", "1", "--out", str(tmp_path)]
    CliRunner().invoke(app, command, catch_exceptions=False)
    rows: list[dict[str, Any]] = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    for row, stored in zip(rows, STORED[name]["rows"], strict=True):
        exact = ("cohort", "steps", "bytes_up", "bytes_down", "refused")
        assert {key: row[key] for key in exact} == {key: stored[key] for key in exact}
        assert row["loss"] == pytest.approx(stored["loss"], abs=1e-3)
        assert row["accuracy"] == pytest.approx(stored["accuracy"], abs=0.02)
        if stored["alpha"] is not None:
            assert row["alpha"] == pytest.approx(stored["alpha"], abs=1e-3)
