"""``fedalpha reproduce``: the published figure beside ours, and a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedalpha.cli import app
from fedalpha.report import gather
from fedalpha.report.tables import results_table
from fedalpha.study import reproduction, run_study, status, study

SMALL: dict[str, Any] = {
    "strategies": ["FedAvg", "FedSoftWorse(T=0.2)"],
    "seeds": 2,
    "protocol": "calibrated",
    "measures": ["accuracy"],
    "published": [{"strategy": "FedAvg", "measure": "accuracy", "mean": 0.4321, "half": 0.0123}],
    "settings": {"dataset": "digits", "partition": "iid", "clients": 3, "model": "softmax", "rounds": 2},
}


def test_an_experiment_is_run_and_shown_beside_the_published_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def small(name: str, protocol: str, **options: Any) -> Any:
        asked.append((name, options["form"]))
        return study({"name": name, "title": f"Small {name}", **SMALL}).with_changes(seeds=options["seeds"])

    monkeypatch.setattr(reproduction, "experiment", small)
    out = tmp_path / "tables"
    done = CliRunner().invoke(app, ["reproduce", "all", "--table", "--seeds", "3", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert asked == [("fmnist-noniid", "table"), ("fmnist-hybrid", "table")]
    for name, _ in asked:
        assert f"Small {name}; protocol calibrated" in done.output
        assert "43.21 ± 1.23" in (out / name / "report.md").read_text()
        assert "Small" in (out / name / "report.html").read_text()
        assert status(out / name).done == 6


def test_a_cited_system_runs_in_its_short_form(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["reproduce", "cho-2020", "--quick", "--out", str(tmp_path), "--jobs", "1"])
    assert done.exit_code == 0, done.output
    assert status(tmp_path).done == 4
    page = (tmp_path / "report.md").read_text()
    assert "power-of-choice, d = 15" in page
    assert "Power-of-Choice is more accurate than random selection" in page
    assert "Not read: the accuracies" in page


def test_a_published_figure_is_shown_in_its_case_alone(tmp_path: Path) -> None:
    figure = {"strategy": "mine", "measure": "accuracy", "mean": 0.4321, "case": "a"}
    one = study(
        {
            "name": "cases",
            "strategies": ["FedAvg"],
            "methods": [{"name": "mine", "lr": 0.2}],
            "seeds": 1,
            "measures": ["accuracy"],
            "published": [figure],
            "settings": {**SMALL["settings"], "rounds": 1},
            "cases": [{"name": "a"}, {"name": "b", "clients": 2}],
        }
    )
    run_study(one, tmp_path, jobs=1)
    found = gather(tmp_path)
    head, rows = results_table(found, "a")
    assert [row[head.index("published")] for row in rows] == ["–", "43.21"]
    assert "published" not in results_table(found, "b")[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["all", "--quick", "--table"], "--quick and --table exclude each other"),
        (["mnist-iid", "--table"], "mnist-iid is not a table of the paper; fmnist-noniid and fmnist-hybrid are"),
        (["fmnist-nonid"], "did you mean 'fmnist-noniid'"),
    ],
)
def test_what_cannot_be_reproduced_is_refused(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["reproduce", *arguments])
    assert isinstance(done.exception, ValueError)
    assert message in str(done.exception)


def test_the_help_names_what_can_be_reproduced() -> None:
    shown = CliRunner().invoke(app, ["reproduce", "--help"]).output
    assert all(name in " ".join(shown.split()) for name in reproduction.NAMES + reproduction.CITED)
