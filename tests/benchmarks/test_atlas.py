"""The atlas on tiny federations: every step, resumed; the choice, the tests and the page by hand."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import atlas
from benchmarks.atlas import (
    ACCURACY,
    ATLAS,
    HELD_OUT,
    OURS,
    WORST,
    choose,
    comparisons,
    page_text,
    power,
    regimes,
    seeds_for,
    sentences,
    verdicts,
)
from benchmarks.pages import shown
from fedalpha.study.tuning.design import Design

ROOT = Path(__file__).parents[2]


def record(case: str, finals: dict[str, list[float]]) -> dict[str, Any]:
    """A stored regime with these last accuracies; the worst tenth is half as accurate."""
    runs = {
        name: {str(i): {ACCURACY: [0.1, a], WORST: a / 2, "megabytes": 2.0} for i, a in enumerate(values)}
        for name, values in finals.items()
    }
    return {"regime": case, "rounds": 1, "runs": runs}


def test_the_registered_studies_lay_out() -> None:
    for file, count in ((ATLAS, 15), (HELD_OUT, 8)):
        found = regimes(file)
        assert len(found) == count
        assert {one.tune.at_least for one in found.values() if one.tune} == {100}  # nobody is dropped
    names = next(iter(regimes(ATLAS).values())).names
    assert set(OURS) < set(names)
    seeds = [set(next(iter(regimes(file).values())).seeds) for file in (ATLAS, HELD_OUT)]
    assert not seeds[0] & seeds[1]
    with pytest.raises(ValueError, match="did you mean 'label noise'"):
        regimes(ATLAS, ["label nois"])


def test_a_regime_is_a_valid_design() -> None:
    (one,) = regimes(ATLAS, ["digits, strong label skew"]).values()
    found = Design.of(one)
    assert len(found.methods) == 23
    assert all(found.runs(case) == 40 for case in found.cases)


def test_every_step_runs_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"dataset": "digits", "clients": 6, "model": "softmax", "rounds": 1, "batch": 32, "clock": "constant"}
    values: dict[str, Any] = {
        "strategies": ("FedAvg", "FedLean"),
        "methods": ({"name": "SCAFFOLD", "update": "scaffold"},),
        "settings": small,
        "cases": ({"name": "one", "partition": "iid"},),
        "seeds": "0-1",
        "tune": {"budget": 6, "space": {"lr": [0.1, 0.5]}, "at_least": 100},
    }
    ours = regimes
    monkeypatch.setattr(atlas, "regimes", lambda file, only=(): ours(file, only, **values))
    monkeypatch.setattr(atlas, "OURS", ("FedLean",))
    monkeypatch.setattr(atlas, "CHOICE_SEEDS", "5000-5001")
    monkeypatch.setattr(atlas, "SEEDS", "0-1")
    monkeypatch.setattr(atlas, "WIDE", 1.0)
    monkeypatch.setattr(atlas, "seeds_for", lambda deviations, count: 2)
    out, runs, page = tmp_path / "out", tmp_path / "runs", tmp_path / "page.md"
    page.write_text("before\n\n<!-- measured -->\n\nold\n\n<!-- end of measured -->\n\nafter\n")
    with pytest.raises(ValueError, match="run the steps tune and choose first"):
        atlas.run("race", out, runs, (), 1, None, lambda _: None)
    said: list[str] = []
    for step in atlas.STEPS:
        atlas.run(step, out, runs, (), 1, page, said.append)
    assert said == ["tune: one", "choose: one", "race: one", "test: one"]
    stored = json.loads((out / "reported" / "one.json").read_text())
    assert list(stored["runs"]) == ["FedAvg", "FedLean", "SCAFFOLD"]
    assert all(sorted(seeds) == ["0", "1"] for seeds in stored["runs"].values())
    assert json.loads((out / "choice.json").read_text())["chosen"] == "FedLean"
    shown = page.read_text()
    assert shown.startswith("before")
    assert shown.endswith("after\n")
    assert "Which rule when" in shown
    assert "The test" in shown
    before = {path: path.read_bytes() for path in out.rglob("*.json")}
    shutil.rmtree(runs / "atlas-one")  # the search; what it found is stored
    for step in atlas.STEPS:
        atlas.run(step, out, runs, (), 1, page, said.append)
    assert {path: path.read_bytes() for path in out.rglob("*.json")} == before
    assert page.read_text() == shown


def test_the_choice_follows_the_stated_rule() -> None:
    base = [0.80, 0.82, 0.81, 0.79, 0.80, 0.82]

    def moved(by: float) -> list[float]:
        return [a + by + i / 1e5 for i, a in enumerate(base)]

    fine = {rule: moved(0.001) for rule in OURS}
    one = record("one", {"FedAvg": base, **fine, "FedLean": moved(0.05), "FedRegret": moved(0.02)})
    two = record("two", {"FedAvg": base, **fine, "FedLean": moved(-0.01)})
    found = choose({"one": one, "two": two})
    assert "FedLean" not in found["qualified"]  # one point less in the second regime, on every seed
    assert found["chosen"] == "FedRegret"
    assert found["rules"]["FedLean"]["least"] == ["two", pytest.approx(-0.01, abs=1e-4)]
    assert found["targets"] == {"one": 78, "two": 78}
    assert "| one | 78 % | 80.7 ± 1.3 | 6 | 1 (2.0 MB) |" in atlas.efforts({"one": one}, found["targets"])
    worse = {rule: moved(-0.01 - 0.001 * i) for i, rule in enumerate(OURS)}
    found = choose({"one": record("one", {"FedAvg": base, **worse})})
    assert (found["qualified"], found["chosen"]) == ([], OURS[0])


def test_non_inferiority_needs_every_regime() -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(0.8, 0.02, 20)
    same, less = base + rng.normal(0, 0.001, 20), base - 0.004 + np.where(np.arange(20) % 2, 0.004, -0.004)
    found = verdicts(
        {"a": record("a", {"FedAvg": base.tolist(), "x": same.tolist()}),
         "b": record("b", {"FedAvg": base.tolist(), "x": less.tolist()})},
        "x",
    )  # fmt: skip
    assert found["a"][1] < 0.001
    assert found["b"][1] > 0.05


def test_the_power_is_that_of_simulated_tests() -> None:
    from scipy import stats

    rng = np.random.default_rng(1)
    draws = rng.normal(0, 0.01, (4000, 20)) + atlas.MARGIN
    rejected = (stats.ttest_1samp(draws, 0, axis=1, alternative="greater").pvalue < atlas.LEVEL).mean()
    assert power(0.01, 20) == pytest.approx(rejected, abs=0.03)
    assert power(0.0, 5) == 1.0
    needed = seeds_for([0.01] * 8, 8)
    assert power(0.01, needed) ** 8 >= 0.8 > power(0.01, needed - 1) ** 8 or needed == 60
    assert seeds_for([1.0], 1) == 60


def test_sentences_and_corrections_come_from_the_rows() -> None:
    base = [0.80, 0.82, 0.81, 0.79, 0.80, 0.81]
    up, down = [a + 0.03 + i / 1e4 for i, a in enumerate(base)], [a - 0.03 - i / 1e4 for i, a in enumerate(base)]
    stored = {case: record(case, {"FedAvg": base, "up": up, "down": down, "same": base}) for case in ("x", "y")}
    found = comparisons(stored, ACCURACY)
    assert found["x"]["same"][1] == 1.0
    assert found["x"]["up"][0].mean == pytest.approx(0.03025)
    assert found["x"]["up"][1] < 0.05
    first, safe, never, behind, worst = sentences(found, comparisons(stored, WORST))
    assert "**up**, significantly in 2 of 2 regimes (x, y) and behind in 0 (none)" in first
    assert safe.endswith("never significantly behind: **up**.")
    assert "**down**, **same**" in never
    assert "**down**, in 2 regimes (x, y)" in behind
    assert "**up**" in worst


def test_an_unknown_accuracy_counts_as_nothing() -> None:
    runs = {"0": {ACCURACY: [0.1, None], WORST: math.nan}}
    assert atlas.final(runs, ACCURACY) == [0.0]
    assert atlas.final(runs, WORST) == [0.0]


def test_the_page_shows_what_is_stored() -> None:
    assert shown(ROOT / "docs" / "atlas.md", "measured") == page_text(ROOT / "docs" / "results" / "atlas").strip()
