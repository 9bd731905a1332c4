"""Two commits on one machine: their bytes, and their seconds in turns."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path

import pytest

from benchmarks import bytes as same_bytes
from benchmarks import turns
from benchmarks.commits import trees
from benchmarks.speed.workloads import QUICK

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True).returncode != 0,
    reason="needs a git checkout",
)


def test_trees_hold_the_commit_and_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with trees("HEAD") as (folder,):
        assert (folder / "src/fedalpha/__init__.py").exists()
    assert not folder.exists()


def test_a_commit_gives_its_own_bytes_and_what_is_stored_is_not_run_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT)
    found = list(same_bytes.compare("HEAD", "HEAD", only="killed and resumed", out=tmp_path))
    assert found == [("killed and resumed", "equal")]
    monkeypatch.setattr(same_bytes, "_results", None)
    assert list(same_bytes.compare("HEAD", "HEAD", only="killed and resumed", out=tmp_path)) == found


def test_commits_take_turns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    tiny = dataclasses.replace(QUICK, a=(2, 64), b=(4, 40))
    found = list(turns.compare("HEAD", "HEAD", turns=1, rounds=2, sizes=tiny))
    assert [workload for workload, _, _ in found] == ["A", "B"]
    assert all(len(before) == len(after) == 1 and min(*before, *after) > 0 for _, before, after in found)
    turns.store(tmp_path, "HEAD", "HEAD", found)
    assert json.loads((tmp_path / "turns.json").read_text())["seconds"]["A"]["before"] == found[0][1]
    assert turns.line("A", [2.0, 2.0], [1.0, 3.0]).endswith("ratio in 2 turns 1.000 (0.500 to 1.500)")
