"""Verdicts on claims, from rows made by hand."""

from __future__ import annotations

from pathlib import Path

from fedalpha.report import gather, write_report
from fedalpha.report.claims import verdicts
from fedalpha.study import Store, study
from fedalpha.study.runner import plan, to_toml

NOTHING = {"ended": "rounds", "versions": {"fedalpha": "test"}}


def folder(tmp_path: Path, finals: dict[str, list[float]], claims: list[dict[str, object]]) -> Path:
    """A study whose runs end with these accuracies (one round each)."""
    values = {"name": "x", "strategies": list(finals), "seeds": 6, "measures": ["accuracy"], "claims": claims}
    found = study({**values, "settings": {"rounds": 1}})
    store = Store(tmp_path)
    store.write_plan(to_toml(found), plan(found, found.cells()))
    for cell in found.cells():
        if cell.seed < len(finals[cell.strategy]):
            rows = {"round": [0, 1], "accuracy": [0.1, finals[cell.strategy][cell.seed]], "loss": [2.0, 1.0]}
            store.put(cell, rows, NOTHING)
    return tmp_path


def claim(better: str, *than: str) -> dict[str, object]:
    return {"text": f"{better} wins", "measure": "accuracy", "better": better, "than": list(than)}


def test_claims_hold_fail_or_stay_open(tmp_path: Path) -> None:
    base = [0.50, 0.55, 0.52, 0.58, 0.51, 0.53]
    finals = {
        "FedAvg": base,
        "FedWorse": [x + 0.1 + 0.001 * i for i, x in enumerate(base)],
        "FedBetter": [x + (0.01 if i % 2 else -0.01) for i, x in enumerate(base)],
        "FedWorse(k=2)": base,
        "FedBetter(k=2)": [],
    }
    claims = [claim("FedWorse", "FedAvg", "FedBetter"), claim("FedAvg", "FedWorse", "FedBetter", "FedWorse(k=2)")]
    found = verdicts(gather(folder(tmp_path, finals, [*claims, claim("FedBetter(k=2)", "FedAvg")])), "")
    words = [v.word for v in found]
    assert words == ["holds", "holds", "contradicted", "not decided", "equal on every seed", "not measured"]
    tested = [v for v in found if v.p_holm is not None]
    smallest = min(v.difference.p for v in tested if v.difference)
    assert len(tested) == 4
    assert min(v.p_holm for v in tested if v.p_holm is not None) == 4 * smallest
    write_report(tmp_path)
    assert "| FedWorse wins | FedWorse against FedAvg |" in (tmp_path / "report.md").read_text()


def test_one_seed_decides_nothing(tmp_path: Path) -> None:
    (verdict,) = verdicts(
        gather(folder(tmp_path, {"FedAvg": [0.5], "FedWorse": [0.9]}, [claim("FedWorse", "FedAvg")])), ""
    )
    assert verdict.word == "not decided"


def test_the_same_comparison_under_two_names_is_counted_once(tmp_path: Path) -> None:
    base = [0.50, 0.55, 0.52, 0.58, 0.51, 0.53]
    finals = {"FedAvg": base, "FedWorse(k=2)": base, "FedWorse": [x + 0.01 * (i + 1) for i, x in enumerate(base)]}
    found = verdicts(gather(folder(tmp_path, finals, [claim("FedWorse", "FedAvg", "FedWorse(k=2)")])), "")
    assert [v.p_holm for v in found] == [v.difference.p for v in found if v.difference]
