"""Scores besides accuracy: the values of scikit-learn, in rows, studies and reports."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn import metrics
from torch import nn

import fedalpha
from fedalpha.analysis.scores import scores
from fedalpha.task import Task

RNG = np.random.default_rng(0)
OUTPUT = torch.from_numpy(RNG.normal(size=(300, 4)))
LABELS = torch.from_numpy(np.where(RNG.random(300) < 0.6, OUTPUT.argmax(1), RNG.integers(0, 4, 300)))


def test_they_are_those_of_scikit_learn() -> None:
    task = Task(scores="balanced_accuracy, f1, roc_auc")
    found = scores(task, task.record(OUTPUT, LABELS).numpy(), 1)
    predicted, shares = OUTPUT.argmax(1).numpy(), OUTPUT.softmax(1).numpy()
    assert found["balanced_accuracy"] == pytest.approx(metrics.balanced_accuracy_score(LABELS, predicted))
    assert found["f1"] == pytest.approx(metrics.f1_score(LABELS, predicted, average="macro"))
    assert found["roc_auc"] == pytest.approx(metrics.roc_auc_score(LABELS, shares, multi_class="ovr"))
    values, guess = torch.from_numpy(RNG.normal(size=(50, 2))), torch.from_numpy(RNG.normal(size=(50, 2)))
    task = Task(scores=("mse", "r2"), correct=None)
    found = scores(task, task.record(guess, values).numpy(), 2)
    assert found["mse"] == pytest.approx(metrics.mean_squared_error(values, guess))
    assert found["r2"] == pytest.approx(metrics.r2_score(values, guess))


def test_labels_alone_are_kept_where_they_are_enough() -> None:
    slim, wide = Task(scores="f1"), Task(scores="f1, roc_auc")
    assert slim.record(OUTPUT, LABELS).shape == (300, 2)
    assert wide.record(OUTPUT, LABELS).shape == (300, 5)
    both = [scores(task, task.record(OUTPUT, LABELS).numpy(), 1)["f1"] for task in (slim, wide)]
    assert both[0] == both[1]
    sequences, targets = OUTPUT.view(75, 4, 4).transpose(1, 2), LABELS.view(75, 4)
    assert scores(slim, slim.record(sequences, targets).numpy(), 4)["f1"] == both[0]
    assert scores(wide, wide.record(sequences, targets).numpy(), 4)["f1"] == both[0]


def test_where_a_score_has_no_value_it_is_none() -> None:
    task = Task(scores="roc_auc")
    assert scores(task, task.record(OUTPUT[:3], torch.zeros(3)).numpy(), 1) == {"roc_auc": None}
    task = Task(scores="r2")
    assert scores(task, task.record(OUTPUT[:3, :1], torch.ones(3, 1)).numpy(), 1) == {"r2": None}
    with pytest.raises(ValueError, match="unknown score 'f2'; did you mean"):
        Task(scores="f2")


@pytest.mark.parametrize("workers", [1, 2])
def test_rows_have_them_and_only_where_they_are_asked_for(workers: int) -> None:
    data = fedalpha.federation("digits", clients=4)
    options = {"rounds": 2, "engine": f"embedded(workers={workers})"}
    plain = fedalpha.run(data, "softmax", **options)
    scored = fedalpha.run(data.with_task(Task(scores="balanced_accuracy, f1, roc_auc")), "softmax", **options)
    added = ["balanced_accuracy", "f1", "roc_auc"]
    assert [key for key in scored.rows[1] if key not in plain.rows[1]] == added
    for row, bare in zip(scored.rows, plain.rows, strict=True):
        assert {k: v for k, v in row.items() if k not in (*added, "seconds")} == {
            k: v for k, v in bare.items() if k != "seconds"
        }
    assert scored.rows[-1]["balanced_accuracy"] == pytest.approx(scored.accuracy[-1], abs=0.02)
    assert scored.rows[-1]["roc_auc"] > 0.9


def test_regression_has_mse_and_r2() -> None:
    x = torch.linspace(-1, 1, 200)[:, None]
    task = Task(loss=nn.functional.mse_loss, correct=None, scores="mse, r2")
    data = fedalpha.federation((x, 3 * x + 1), clients=4, task=task)
    options = {"rounds": 10, "update": "sgd(lr=0.2)", "engine": "embedded(workers=1)"}
    last = fedalpha.run(data, lambda: nn.Linear(1, 1), **options).rows[-1]
    assert last["mse"] == pytest.approx(last["loss"])
    assert last["r2"] > 0.9
    assert last["accuracy"] is None


def test_clients_are_measured_on_their_own_test_parts_with_their_ids() -> None:
    x, y = torch.eye(3).repeat(10, 1), torch.arange(30) % 3
    own = [(x[:3], y[:3])] * 3
    data = fedalpha.federation([(x, y)] * 3, test=own)
    assert data.test_owner is not None
    data.test_owner = np.where(data.test_owner == 1, 2, data.test_owner)  # client 1 has none
    row = fedalpha.run(data, "softmax", rounds=1, engine="embedded(workers=1)").rows[-1]
    assert row["tested_clients"] == [0, 2]
    assert len(row["client_accuracy"]) == 2
    assert "tested_clients" not in fedalpha.run(fedalpha.federation("digits", clients=2), rounds=0).rows[0]


STUDY = """
name = "scored"
strategies = ["FedAvg", "FedSoftWorse(T=0.2)"]
seeds = 2
measures = ["f1", "roc_auc@1", "accuracy"]
stop_at = "f1 >= 0.999"
[settings]
dataset = "synthetic(a=0, b=0)"
clients = 4
rounds = 2
model = "softmax"
"""


def test_a_study_measures_them_and_reports_every_client(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from fedalpha.report import write_report
    from fedalpha.study import read_study, run_study

    (tmp_path / "scored.toml").write_text(STUDY)
    missing = read_study(tmp_path / "scored.toml").unanswered()
    assert [line.partition(":")[0] for line in missing if "under [settings]" in line] == ["f1", "roc_auc@1"]
    (tmp_path / "scored.toml").write_text(STUDY + 'scores = "f1, roc_auc"\n')
    plan = read_study(tmp_path / "scored.toml")
    run_study(plan, tmp_path / "runs", jobs=1)
    write_report(tmp_path / "runs")
    with (tmp_path / "runs" / "statistics.csv").open(newline="") as file:
        measured = {row["measure"]: float(row["mean"]) for row in csv.DictReader(file)}
    assert set(measured) == {"f1", "roc_auc@1", "accuracy"}
    assert 0 < measured["f1"] < 1
    note = "FedAvg, seed 0, on the clients' own test parts after round 2: worst client"
    for page in ("report.md", "report.html"):
        assert note in (tmp_path / "runs" / page).read_text()
    with (tmp_path / "runs" / "clients.csv").open(newline="") as file:
        clients = list(csv.DictReader(file))
    assert [row["client"] for row in clients if row["strategy"] == "FedAvg"] == ["0", "1", "2", "3"]
    assert all(0 <= float(row["accuracy"]) <= 1 and row["round"] == "2" for row in clients)
