"""Verdicts on claims, from rows made by hand."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from fedalpha.report import console_tables, gather, write_report
from fedalpha.report.claims import verdicts
from fedalpha.report.content import content, facts
from fedalpha.report.figures import _curves
from fedalpha.study import Store, study
from fedalpha.study.runner import plan, to_toml

NOTHING = {"ended": "rounds", "versions": {"fedalpha": "test"}}


def folder(tmp_path: Path, finals: dict[str, list[float]], claims: list[dict[str, object]], **changes: object) -> Path:
    """A study whose runs end with these accuracies (one round each)."""
    curves = {strategy: [[0.1, value] for value in values] for strategy, values in finals.items()}
    return drawn(tmp_path, curves, {"measures": ["accuracy"], "claims": claims, **changes})


def drawn(tmp_path: Path, curves: dict[str, list[list[float]]], changes: dict[str, object]) -> Path:
    """A study whose runs have these accuracies, round by round."""
    rounds = max(len(curve) for by_seed in curves.values() for curve in by_seed) - 1
    found = study({"name": "x", "strategies": list(curves), "seeds": 6, "settings": {"rounds": rounds}, **changes})
    store = Store(tmp_path)
    store.write_plan(to_toml(found), plan(found, found.cells()))
    for cell in found.cells():
        if cell.seed < len(curves[cell.strategy]):
            curve = curves[cell.strategy][cell.seed]
            store.put(cell, {"round": list(range(len(curve))), "accuracy": curve, "loss": [1.0] * len(curve)}, NOTHING)
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
    assert (
        min(v.p_holm for v in tested if v.p_holm is not None) == 3 * smallest
    )  # FedWorse against FedAvg, and the reverse, are one
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


def test_a_bound_that_points_the_other_way_decides_nothing(tmp_path: Path) -> None:
    """Five seeds get there at once and one never: nobody knows how long that one would have taken."""

    def reaching(round: int, rounds: int = 20) -> list[float]:
        return [0.1] * min(round, rounds + 1) + [0.9] * (rounds + 1 - round)

    curves = {
        "FedAvg": [reaching(19 - seed % 2) for seed in range(6)],
        "FedWorse": [reaching(1 + seed % 2) for seed in range(5)] + [reaching(21)],
        "FedBetter": [reaching(1 + seed % 2) for seed in range(6)],
        "FedWorse(k=2)": [reaching(15 + seed % 2) for seed in range(5)] + [reaching(21)],
    }
    claims = [{**claim("FedWorse", "FedAvg"), "measure": "R_60"}, {**claim("FedBetter", "FedAvg"), "measure": "R_60"}]
    claims.append({**claim("FedAvg", "FedWorse"), "measure": "R_60"})
    claims.append({**claim("FedWorse", "FedWorse(k=2)"), "measure": "R_60"})
    found = verdicts(gather(drawn(tmp_path, curves, {"measures": ["R_60"], "claims": claims})), "")
    assert [v.difference.bound for v in found if v.difference] == ["≥ ", "", "≤ ", "cut at 20: "]
    assert all(v.p_holm is not None and v.p_holm < 0.05 for v in found)
    assert [v.word for v in found] == ["not decided", "holds", "not decided", "not decided"]
    write_report(tmp_path)
    rows = list(csv.DictReader((tmp_path / "statistics.csv").open()))
    assert [row["difference_bound"] for row in rows] == ["", "≥", "", "≥"]
    page = content(gather(tmp_path))["cases"][0]
    assert [item["bound"] for item in page["forests"][0]["items"]] == ["≥", "", "≥"]
    assert [item["bound"] for item in page["dots"][0]["items"]] == ["", "≥", "", "≥"]


def test_what_nobody_reached_is_not_decided_and_what_did_not_run_not_measured(tmp_path: Path) -> None:
    """Values that are equal by chance are tested (p = 1) and said to be equal."""
    curves = {
        "FedAvg": [[0.1, 0.3, 0.5], [0.1, 0.3, 0.52]],
        "FedWorse": [[0.1, 0.2, 0.5], [0.1, 0.2, 0.52]],
        "FedBetter": [],
    }
    claims = [{**claim("FedWorse", "FedAvg"), "measure": name} for name in ("R_60", "accuracy")]
    claims.append({**claim("FedBetter", "FedAvg"), "measure": "R_60"})
    found = verdicts(gather(drawn(tmp_path, curves, {"claims": claims})), "")
    assert [v.word for v in found] == ["not decided", "equal on every seed", "not measured"]
    assert [v.p_holm for v in found] == [None, 1.0, None]


def test_a_comparison_and_its_reverse_are_one(tmp_path: Path) -> None:
    finals = {"FedAvg": [0.5, 0.52, 0.5], "FedWorse": [0.6, 0.63, 0.61]}
    found = verdicts(gather(folder(tmp_path, finals, [claim("FedWorse", "FedAvg"), claim("FedAvg", "FedWorse")])), "")
    assert [v.word for v in found] == ["holds", "contradicted"]
    assert all(v.difference is not None and v.p_holm == v.difference.p for v in found)


def test_texts_are_shown_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No markup of the terminal, no formula of the pictures, no row of its own in Markdown."""
    said = {**claim("FedWorse", "FedAvg"), "text": "see [/3.1] of\nthem"}
    finals = {"FedAvg": [0.5, 0.52], "FedWorse": [0.6, 0.63]}
    findings = gather(folder(tmp_path, finals, [said], title="$50% of $x [/]", cases=[{"name": "[/] $a_b$c$"}]))
    console_tables(findings)
    shown = capsys.readouterr().out
    assert "see [/3.1] of" in shown
    assert "[/] $a_b$c$" in shown
    write_report(tmp_path)
    assert "| see [/3.1] of them | FedWorse against FedAvg |" in (tmp_path / "report.md").read_text()


def test_without_the_reference_there_are_no_differences(tmp_path: Path) -> None:
    finals = {"FedAvg": [0.5, 0.6], "FedWorse": [0.6, 0.8], "FedBetter": []}
    findings = gather(folder(tmp_path, finals, [], reference="FedBetter"))
    (rows,) = findings.summaries("").values()
    assert [(row.strategy, row.difference, row.p_holm) for row in rows] == [
        ("FedAvg", None, None), ("FedWorse", None, None)
    ]  # fmt: skip
    write_report(tmp_path)
    assert "| FedWorse | 2 | 70.00 ± 127.06 | – | – |" in (tmp_path / "report.md").read_text()


def test_every_twin_is_named(tmp_path: Path) -> None:
    """The last one's cell comes from another study, as docs/studies.md shows, and its twin is not there."""
    finals = {name: [0.5, 0.6, 0.7, 0.8] for name in ("FedAvg", "FedWorse", "FedBetter")}
    found = gather(folder(tmp_path, finals, []))
    store, keys = found.store, {(cell.strategy, cell.seed): cell for cell in found.cells}
    twins = [keys[name, seed].key for seed, name in enumerate(("FedAvg", "FedWorse", "FedWorse"))]
    for seed, twin in enumerate([*twins, "0123456789abcdef"]):
        columns = found.results[keys["FedBetter", seed].key].columns
        store.put(keys["FedBetter", seed], columns, {**NOTHING, "coincides_with": twin})
    assert gather(tmp_path).coinciding("") == [
        ("FedBetter", "FedAvg", 1, 4), ("FedBetter", "FedWorse", 2, 4), ("FedBetter", "cells outside this study", 1, 4)
    ]  # fmt: skip


def test_the_facts_speak_of_all_cases(tmp_path: Path) -> None:
    cases = [{"name": "a"}, {"name": "b", "rounds": 5, "stop_at": "accuracy >= 0.9"}]
    found = gather(folder(tmp_path, {"FedAvg": [0.5, 0.6]}, [], cases=cases))
    assert facts(found)[-1] == "until accuracy >= 0.9, ≤ 1 to 5 rounds"


def test_an_accuracy_window_is_drawn_in_the_files_too(tmp_path: Path) -> None:
    views = [{"rounds": [0, 1]}, {"rounds": [0, 1], "accuracy": [0.5, 0.6]}]
    findings = gather(folder(tmp_path, {"FedAvg": [0.5, 0.6]}, [], zoom=views))
    write_report(tmp_path)
    assert {"zoom-0-1.svg", "zoom-0-1-0.5-0.6.svg"} <= {p.name for p in (tmp_path / "figures").iterdir()}
    data = content(findings)
    (case,) = data["cases"]
    assert _curves(data, case, case["zoom"][1]).axes[0].get_ylim() == (50, 60)
