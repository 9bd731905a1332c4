"""Tuning on real federations: a known winner, ten names for one rule, stopping and resuming."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from commands import fedalpha
from fedalpha.report import gather
from fedalpha.report.race import draw_races
from fedalpha.study import CellError, Store, Study, read_tuning, run_study, study, tune
from fedalpha.study.runner import to_toml
from fedalpha.study.tuning.answer import answer
from fedalpha.study.tuning.design import Design

SETTINGS: dict[str, Any] = {
    "dataset": "digits",
    "partition": "shards(size=30)",
    "clients": 6,
    "model": "softmax",
    "rounds": 2,
    "batch": 32,
}


def small(**changes: Any) -> Study:
    table = {"budget": 32, "candidates": 2, **changes.pop("tune", {})}
    values = {"name": "small", "strategies": ["FedAvg", "FedSoftWorse(T=log(0.05, 5))"], "seeds": 3}
    return study({**values, "settings": SETTINGS, **changes, "tune": table})


def contents(folder: Path) -> dict[str, bytes]:
    files = (p for p in folder.rglob("*") if p.is_file() and "log" not in p.relative_to(folder).parts)
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuning") / "small"
    tune(small(), folder, jobs=2)
    return folder


def test_the_folder_holds_the_races_the_answer_and_a_study_of_the_reported_runs(finished: Path) -> None:
    journal = read_tuning(finished)
    assert journal["complete"]
    methods = journal["cases"][""]["methods"]
    assert methods["FedAvg"]["rounds"] == 0
    assert 0 < methods["FedSoftWorse(T=log(0.05, 5))"]["rounds"] <= 32
    found = gather(finished)
    assert {cell.seed for cell in found.cells} == {0, 1, 2}
    assert {cell.settings.part for cell in found.cells} == {"reported(share=0.5)"}
    assert list(found.of("")) == ["FedAvg", "FedSoftWorse(T=log(0.05, 5))"]
    stored = Store(finished)
    about = [stored.get(key).about["config"] for key in stored._tables()]
    tuned = [config for config in about if config["part"] == "tuning(share=0.5)"]
    assert {config["seed"] for config in tuned} >= {1000, 1001}
    assert all(config["seed"] >= 1000 for config in tuned)
    assert (finished / "answer.md").read_text() == answer(journal).markdown()
    assert draw_races(finished)[0].stat().st_size > 10_000


def test_a_study_that_was_stopped_anywhere_comes_to_the_same_files(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "stopped"
    (finished / "race.png").unlink(missing_ok=True)
    for allowed in (3, 9):

        def stop(done: int, total: int, running: list[str], allowed: int = allowed) -> None:
            if done >= allowed:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            tune(small(), folder, jobs=1, watch=stop)
        assert not read_tuning(folder)["complete"]
    before = {path.name for path in (folder / "cells").iterdir()}
    assert before
    tune(small(), folder, jobs=2)
    assert contents(folder) == contents(finished)


def test_the_settings_can_be_found_before_any_reported_seed_is_run(finished: Path, tmp_path: Path) -> None:
    answer = tune(small(), tmp_path, race=False)
    assert answer.words() == "nothing was compared yet"
    journal = read_tuning(tmp_path)
    assert not journal["complete"]
    assert journal["cases"][""]["reported"] is None
    found = json.loads((finished / "tune.json").read_text())["cases"][""]["methods"]
    assert journal["cases"][""]["methods"] == found
    assert not (tmp_path / "study.json").exists()
    seeds = {about["seed"] for about in (Store(tmp_path).get(key).about["config"] for key in Store(tmp_path)._tables())}
    assert seeds
    assert min(seeds) >= 1000
    tune(small(), tmp_path)
    assert contents(tmp_path) == contents(finished)


def test_ten_names_for_one_rule_have_no_winner(tmp_path: Path) -> None:
    """Paired runs are equal, so they are computed once."""
    names = [{"name": f"name {i}", "strategy": "FedAvg"} for i in range(9)]
    found = tune(small(strategies=["FedAvg"], seeds=2, methods=names), tmp_path)
    verdict = found.verdicts[""]
    assert verdict.winner is None
    assert len(verdict.alive) == 10
    assert all(s.ahead == 0 for s in verdict.alive)
    assert len(Store(tmp_path)._tables()) == 2


def test_a_known_winner_is_found_and_named(tmp_path: Path) -> None:
    slow = {"name": "slow", "lr": 1e-6}
    one = small(strategies=["FedAvg"], seeds=12, reference="slow", methods=[slow], tune={"clients": 0})
    said: list[str] = []
    found = tune(one, tmp_path, say=said.append).verdicts[""]
    assert found.winner == "FedAvg"
    assert 6 <= found.seeds <= 12
    assert found.standings["FedAvg"].p < 0.025
    assert found.standings["slow"].dropped == found.seeds
    assert f"on {found.seeds} held-out seeds" in found.words()
    assert found.words().startswith("FedAvg over slow by ")
    assert said == [f"dropped after seed {found.seeds - 1}: slow, behind FedAvg"]
    assert {c.settings.part for c in gather(tmp_path).cells} == {None}


def test_cases_are_tuned_separately_and_lower_can_be_better(tmp_path: Path) -> None:
    one = small(
        strategies=["FedAvg", "FedSoftWorse(T=[0.1, 10])"],
        cases=[{"name": "few", "clients": 4}, {"name": "more", "clients": 8}],
        seeds=1,
        tune={"budget": 8, "measure": "loss"},
    )
    found = tune(one, tmp_path)
    assert list(found.verdicts) == ["few", "more"]
    for verdict in found.verdicts.values():
        best = max(verdict.standings.values(), key=lambda s: s.ahead)
        assert best.mean == min(s.mean for s in verdict.standings.values()) > 0
        assert verdict.words().startswith(f"{verdict.case}: No winner after 2 rounds on 1 held-out seed")
    assert {p.name for p in draw_races(tmp_path)} == {"race-few.png", "race-more.png"}


FAILING = """
from fedalpha.update import UPDATES
from fedalpha.update.sgd import sgd


@UPDATES.register(name="failing_in_tune")
class Failing(sgd, name="failing_in_tune"):
    def update(self, site, broadcast, data, state, draws, wanted=frozenset()):
        raise RuntimeError("out of order")
"""


def test_a_cell_that_fails_is_named_and_the_others_are_kept(tmp_path: Path) -> None:
    plugin = tmp_path / "failing.py"
    plugin.write_text(FAILING)
    broken = {"name": "broken", "update": "failing_in_tune"}
    one = small(strategies=["FedAvg"], settings={**SETTINGS, "plugin": str(plugin)}, methods=[broken])
    with pytest.raises(CellError, match=r"1 of 2 cells failed, the others are done.*broken, seed 0"):
        tune(one, tmp_path / "out", jobs=1)
    assert len(list((tmp_path / "out" / "cells").iterdir())) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tune": {"budget": 8}}, "budget = 32 or more"),
        ({"seeds": [1001]}, "seed 1001 would be tuned on and reported"),
        ({"stop_at": "accuracy >= 0.5"}, "leave stop_at out"),
        ({"strategies": ["FedAvg"]}, "at least two methods"),
        ({"tune": {"measure": "R_60"}}, "never reaches the accuracy"),
        ({"tune": {"sampler": "tp"}}, "did you mean 'tpe'"),
        ({"tune": {"space": {"lrr": [1]}}}, "did you mean 'lr'"),
        ({"tune": {"space": {"rounds": [1]}}}, r"set it under \[settings\]"),
        ({"tune": {"space": {"lr": "log(1, 0.1)"}}}, "the smaller one first"),
        ({"methods": [{"lr": 1}]}, "has no name"),
        ({"methods": [{"name": "FedAvg"}]}, "given twice"),
        ({"methods": [{"name": "x", "update": "sdg"}]}, "did you mean 'sgd'"),
        ({"tune": {"bugdet": 1}}, "did you mean 'budget'"),
        ({"strategies": ["FedAvg", "FedSoftWorse(T=log(-1, 2))"]}, "both above 0"),
        ({"strategies": ["FedAvg", "FedSoftWorst(T=log(1, 2))"]}, "did you mean 'FedSoftWorse'"),
    ],
)
def test_mistakes_are_found_before_anything_is_run(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Design.of(small(**changes))


def test_spaces_need_a_table_and_a_table_needs_tune(tmp_path: Path) -> None:
    plain = {"name": "x", "strategies": ["FedSoftWorse(T=log(0.1, 1))"], "seeds": 1}
    with pytest.raises(ValueError, match=r"\[tune\]"):
        study(plain)
    with pytest.raises(ValueError, match="fedalpha tune"):
        run_study(small(), tmp_path)
    with pytest.raises(ValueError, match=r"no \[tune\] table"):
        tune(study({**plain, "strategies": ["FedAvg"]}), tmp_path)


def test_another_study_is_not_overwritten(finished: Path) -> None:
    with pytest.raises(ValueError, match="holds the study 'small'"):
        tune(small(name="other"), finished)


def test_the_command_line(finished: Path, tmp_path: Path) -> None:
    done = fedalpha("tune", str(finished))
    assert done.returncode == 0, done.stderr
    words = answer(read_tuning(finished)).words()
    assert words in done.stdout
    assert "probability at most 5 %" in done.stdout
    assert words in fedalpha("status", str(finished)).stdout
    wrong = fedalpha("tune", "--strategy", "FedAvg", "--strategy", "FedWorse", "--space", "lr")
    assert wrong.returncode == 2
    assert "lr=log(0.01, 1)" in wrong.stderr
    options = ["--rounds", "1", "--clients", "4", "--model", "softmax", "--budget", "1", "--seeds", "1", "--jobs", "1"]
    out = tmp_path / "out"
    made = fedalpha("tune", "--strategy", "FedAvg", "--strategy", "FedWorse", *options, "--out", str(out))
    assert made.returncode == 0, made.stderr
    assert json.loads((out / "tune.json").read_text())["complete"]
    again = fedalpha("study", str(out))
    assert again.returncode == 0, again.stderr
    assert "No winner after 1 round on 1 held-out seed" in again.stdout


@pytest.mark.parametrize("package", ["pyarrow", "optuna"])
def test_a_missing_package_is_named_before_anything_is_run(tmp_path: Path, package: str) -> None:
    (tmp_path / "small.toml").write_text(to_toml(small()))
    code = f"import sys; sys.modules['{package}'] = None; from fedalpha.cli import main; main()"
    command = [sys.executable, "-c", code, "tune", str(tmp_path / "small.toml"), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert "install it with: pip install" in done.stderr
    assert "cells" not in done.stdout
