"""One table of columns: what a row says, in which order, and how a new column comes in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fedalpha
from commands import fedalpha as command
from fedalpha.analysis.columns import Context, columns, numbers, row, stored
from fedalpha.analysis.fairness import Owners
from fedalpha.round import Outcome, Refusal, ServerState
from fedalpha.strategies import Cohort

ORDER = [  # of the columns that this file knows; others may stand between them
    "round",
    "accuracy",
    "loss",
    "validation_accuracy",
    "client_accuracy",
    "worst_client_accuracy",
    "client_accuracy_spread",
    "cohort",
    "alpha",
    "losses",
    "steps",
    "bytes_down",
    "bytes_up",
    "refused",
    "idle",
    "kept",
    "influence",
    "rho",
    "pi",
    "Pi",
    "effective_clients",
    "heaviest",
    "seconds",
]
COLUMN = """
from fedalpha.analysis.columns import COLUMNS, Column, Context

@COLUMNS.register
class Heavy(Column):
    name = "heavy_clients"
    dtype = "int64"
    heading = "clients with more than their share"
    better = "lower"
    panel = True

    def value(self, context: Context) -> int | None:
        outcome = context.outcome
        return None if outcome is None else int((outcome.alpha > 1.01 / len(outcome.alpha)).sum())
"""
MEASURE = """
from fedalpha.analysis.measures import MEASURES, Whole

@MEASURES.register
class Peak(Whole):
    name = "peak"
    heading = "highest accuracy (%)"
    higher_is_better = True

    def over(self, rounds, accuracy):
        return float(accuracy.max())
"""
STUDY = """
name = "mine"
strategies = ["FedAvg", "FedSoftWorse(T=0.2)"]
seeds = 2
measures = ["peak", "heavy_clients", "heavy_clients@1"]
[settings]
rounds = 2
clients = 5
"""


def full() -> Context:
    outcome = Outcome(
        state=ServerState(5, None, {}, {}, {}, {}),
        cohort=Cohort(np.array([3, 7]), np.array([10.0, 10.0]), before=np.array([1.0, 3.0])),
        alpha=np.array([0.25, 0.75]),
        losses={"before": [1.0, 3.0], "after": [0.5, float("nan")]},
        steps=4,
        bytes_down=20,
        bytes_up=30,
        refusals=[Refusal(9, "late")],
        idle=[3],
    )
    return Context(
        round=5,
        outcome=outcome,
        influence={"clients": 1, "mass": 0.75, "possible": 1.0, "bound": None},
        accuracy=0.75,
        loss=float("inf"),
        correct=np.array([1.0, 0.0, 1.0, 1.0]),
        owners=Owners(np.array([0, 0, 1, 1])),
        validation_accuracy=0.5,
        seconds=0.12345678,
    )


def test_a_full_row_by_hand() -> None:
    found = row(full())
    json.dumps(found, allow_nan=False)
    found = {name: value for name, value in found.items() if name in ORDER}
    assert list(found) == ORDER
    assert list(found.values()) == [
        *(5, 0.75, None, 0.5, [0.5, 1.0], 0.5, 0.25),
        *([3, 7], [0.25, 0.75], {"before": [1.0, 3.0], "after": [0.5, None]}, 4, 20, 30),
        *([{"client": 9, "reason": "late"}], [3], None),
        {"clients": 1, "mass": 0.75, "possible": 1.0, "bound": None},
        *(1.25, 0.5, 1.5, 1.6, 0.75),
        0.123457,
    ]


def test_the_initial_model_has_no_round() -> None:
    found = {name: value for name, value in row(Context(round=0)).items() if name in ORDER}
    assert list(found) == [name for name in ORDER if name not in ("client_accuracy", "validation_accuracy")]
    assert {name for name, value in found.items() if value is None} == {
        *("accuracy", "loss", "worst_client_accuracy", "client_accuracy_spread", "cohort", "alpha", "losses", "kept"),
        *("influence", "rho", "pi", "Pi", "effective_clients", "heaviest"),
    }


def test_a_run_writes_the_columns_in_their_order() -> None:
    digits = fedalpha.federation("digits", partition="iid", clients=3)
    history = fedalpha.run(digits, "softmax", rounds=1, engine="embedded(workers=1)")
    order = [found.name for found in columns()]
    for line in history.rows:
        assert list(line) == sorted(line, key=order.index)
        assert order.index("seconds") == len(order) - 1


def test_cells_keep_single_numbers_first() -> None:
    kept = [found.name for found in stored()]
    assert kept[0] == "round"
    single = [found.name for found in numbers()]
    assert kept[1 : 1 + len(single)] == single
    per_client = kept[1 + len(single) :]
    assert [name for name in per_client if name in ORDER or "loss_" in name] == [
        *("client_accuracy", "cohort", "alpha", "loss_before", "loss_train", "loss_after")
    ]
    kinds = [found for found in stored() if found.name.startswith("loss_")]
    losses = {found.name: found.read({"losses": {"after": [1.0]}}) for found in kinds}
    assert losses == {"loss_before": None, "loss_train": None, "loss_after": [1.0]}


def test_rows_need_no_torch() -> None:
    code = "import sys, fedalpha.analysis.columns as c; c.row(c.Context(round=0)); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_column_and_a_measure_are_one_file_each_in_a_plugin(tmp_path: Path) -> None:
    """A study with both, from the command line; ``tests/test_extending.py`` also drops such files into the package."""
    pytest.importorskip("pyarrow")
    (tmp_path / "mine.py").write_text(COLUMN + MEASURE)
    (tmp_path / "mine.toml").write_text(STUDY + 'plugin = "mine.py"\nmodel = "softmax"\n')
    done = command("study", "mine.toml", "--trust", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "highest accuracy (%)" in done.stdout
    assert "clients with more than their share, round 1" in done.stdout
    done = command("report", "runs/mine", "--plugin", "mine.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    header = (tmp_path / "runs" / "mine" / "rounds.csv").read_text().splitlines()[0].split(",")
    assert {"heaviest", "heavy_clients", "cell"} <= set(header)
    assert '"name":"heavy_clients"' in (tmp_path / "runs" / "mine" / "report.html").read_text()
