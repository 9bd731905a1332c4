"""The comparison with a plain loop runs, and both sides train the same clients."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import loops


def test_a_quick_comparison_measures_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: loops.WORKS[name] for name in ("lenet", "transformer")}
    monkeypatch.setattr(loops, "WORKS", few)
    said: list[str] = []
    found = loops.measure(tmp_path, turns=1, scale=0.0, say=said.append)
    assert json.loads((tmp_path / "loops.json").read_text()) == found
    for line, measured in zip(said, found.values(), strict=True):
        assert "ratio" in line
        assert measured["fedalpha"] > 0  # type: ignore[index]
        assert measured["plain"] > 0  # type: ignore[index]


def test_every_client_has_its_share() -> None:
    data = loops.WORKS["lstm"].data(0.1)
    assert data.clients == 4
    assert [len(data.client(i)) for i in range(4)] == [4] * 4
