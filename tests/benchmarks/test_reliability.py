"""The reliability bench, small: no crash, no non-finite model, every refusal logged, nothing over 2·B·C."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.reliability import byzantine
from benchmarks.reliability.matrix import FAULT_TEXTS, TIGHT, fault_matrix
from benchmarks.reliability.page import page
from benchmarks.reliability.saving import save_cost
from benchmarks.reliability.vectors import RULES, vector_table
from fedalpha.data import Pooled
from fedalpha.strategies import STRATEGIES


def test_the_fault_matrix_in_small() -> None:
    rows = list(fault_matrix(least=20, texts=FAULT_TEXTS[::4]))
    assert len(rows) >= len(list(STRATEGIES)) - 1 + len(TIGHT)  # the paper's hybrids may coincide
    for row in rows:
        assert row["injected"] >= 20, row
        assert row["refused"] == row["logged"], row
        assert row["crashes"] == row["non_finite"] == row["unrefused"] == row["over_bound"] == 0, row


def test_one_bad_coordinate_breaks_no_rule_and_attackers_do_not_move_the_robust_ones() -> None:
    rows = {(r["attack"], r["rule"]): r["ours"] for r in vector_table(None)}
    for rule in RULES:
        assert rows["one NaN", rule] is not None
        if rule != "average":
            assert rows["huge", rule] < 0.5
    assert rows["huge", "average"] > 1e4


def test_a_stopped_table_goes_on_and_the_page_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byzantine, "ATTACKS", {"none": None, "ALIE": "alie(clients=4)"})
    monkeypatch.setattr(byzantine, "STRATEGIES", ("FedAvg",))
    cache = tmp_path / "byzantine.jsonl"
    first = list(byzantine.byzantine_cells([0], cache, rounds=1))
    monkeypatch.setattr(byzantine, "_cell", lambda *_: pytest.fail("a finished cell is run again"))
    assert list(byzantine.byzantine_cells([0], cache, rounds=1)) == json.loads(json.dumps(first))
    cost = {"clients": 9, "model": "cnn", "rounds": 3, "round_seconds": 20.0, "save_seconds": 0.1, "share": 0.005}
    cost |= {"save_seconds_at_100_rows": 0.2, "share_at_100_rows": 0.01}
    (tmp_path / "saving.json").write_text(json.dumps(cost))
    page(tmp_path)
    text = (tmp_path / "README.md").read_text()
    assert "| FedAvg | cap + NNM + trimmed | ALIE | 1 |" in text
    assert "| 20.0 | 0.100 | 0.50% | 0.200 | 1.00% |" in text
    assert (tmp_path / "byzantine.png").stat().st_size > 1000


def test_the_cost_of_saving_is_measured(digits: Pooled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cost = save_cost(digits, "softmax", rounds=2)
    assert cost["share"] == cost["save_seconds"] / cost["round_seconds"]
    assert 0 < cost["save_seconds"] < 10
    assert list(tmp_path.iterdir()) == []
