"""The benchmark of combine rules, at a small size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import combine
from benchmarks.combine import measure
from benchmarks.combine_side import OURS

pytestmark = pytest.mark.slow


def test_the_tables_are_written_and_a_part_can_be_measured_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(combine, "TIMES", combine.TIMES[:1])
    monkeypatch.setattr(combine, "MEMORY", combine.MEMORY[:1])
    text = measure(tmp_path, 1, None, None, "memory", quick=True)
    assert text.count("\n| noise |") == 1
    text = measure(tmp_path, 1, None, None, "time", quick=True)
    assert text == (tmp_path / "combine.md").read_text()
    assert all(text.count(f"\n| {name} |") == 2 for name in OURS)
    with pytest.raises(ValueError, match="time, memory, both"):
        measure(tmp_path, 1, None, None, "speed")


def test_the_page_states_the_stored_ratios() -> None:
    docs = Path(__file__).parents[2] / "docs"
    stored = json.loads((docs / "results/combine/combine.json").read_text())
    page = (docs / "speed.md").read_text()
    assert stored["turns"] >= 7
    for rule in ("median", "median, unequal", "trimmed", "trimmed, unequal"):
        seconds = [case["seconds"] for case in stored["time"]]
        ratios = [found[f"fedalpha {rule}"][0] / found["torch median"][0] for found in seconds]
        assert f"{min(ratios):.2f} to {max(ratios):.2f}" in page
