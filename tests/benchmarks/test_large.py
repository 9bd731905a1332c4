"""The benchmark of large models, with a small one; its parts can be measured alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.large import RULES, measure
from benchmarks.large_side import SHAPE, width

pytestmark = pytest.mark.slow


def test_the_tables_are_written(tmp_path: Path) -> None:
    assert "1.00" in measure(tmp_path, "cohort", quick=True)
    text = measure(tmp_path, "train", quick=True)
    assert text == (tmp_path / "large.md").read_text()
    assert all(f"| `{rule}` |" in text for rule in RULES)
    assert text.count("| 20,000 | 2 |") == 2
    with pytest.raises(ValueError, match="train, cohort, both"):
        measure(tmp_path, "memory")


def test_the_model_has_about_as_many_parameters_as_asked() -> None:
    for parameters in (20_000, 25_000_000):
        side = width(parameters)
        assert abs(side * (side + SHAPE[0] + 12) / parameters - 1) < 0.05
