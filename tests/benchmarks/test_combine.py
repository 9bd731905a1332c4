"""The benchmark of combine rules, at a small size."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.combine import measure
from benchmarks.combine_side import OURS

pytestmark = pytest.mark.slow


def test_the_tables_are_written_and_a_part_can_be_measured_alone(tmp_path: Path) -> None:
    text = measure(tmp_path, 1, None, None, "memory", quick=True)
    assert text.count("\n| noise |") == 1
    text = measure(tmp_path, 1, None, None, "time", quick=True)
    assert text == (tmp_path / "combine.md").read_text()
    assert all(text.count(f"\n| {name} |") == 4 for name in OURS)
    with pytest.raises(ValueError, match="time, memory, both"):
        measure(tmp_path, 1, None, None, "speed")
