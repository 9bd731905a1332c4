"""The benchmark of a live server, at a small size."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.server import measure

pytestmark = pytest.mark.slow


def test_both_tables_are_written(tmp_path: Path) -> None:
    found = measure(tmp_path, 1, 267_000, (2,), (2,))
    assert found["aggregation"][0]["ratio"] > 0
    assert found["aggregation"][0]["extra_models"]["FedAlpha"] > 0
    assert found["streaming"][0]["peak_models"] >= 0
    assert (tmp_path / "server.md").read_text().count("| 2 |") == 2
