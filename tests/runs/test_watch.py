"""Early stopping, the best model and shadow rules of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedalpha
from fedalpha.analysis.history import History, read
from fedalpha.data import Pooled
from fedalpha.runs.callbacks import Callback, StopWhen
from fedalpha.runs.evaluate import Evaluate
from fedalpha.runs.folder import Folder
from histories import same_model, without_times


class Kill(Callback):
    """An error after a round."""

    def __init__(self, round: int) -> None:
        self.round = round

    def on_round(self, row: dict[str, Any], state: object) -> None:
        if row["round"] == self.round:
            raise ZeroDivisionError


def run(digits: Pooled, strategy: str = "FedAvg", rounds: int = 6, **more: Any) -> History:
    update = more.pop("update", "sgd(lr=0.5)")
    return fedalpha.run(digits, "softmax", strategy, rounds=rounds, update=update, engine="embedded(workers=1)", **more)


def bare(history: History) -> list[dict[str, Any]]:
    """The rows without what is watched."""
    watched = ("shadow", "best_round", "stopped", "validation_accuracy", "validation_loss")
    return [{k: v for k, v in row.items() if k not in watched} for row in without_times(history)]


def same_best(a: History, b: History) -> bool:
    assert a.best is not None
    assert b.best is not None
    return a.best.round == b.best.round and all(torch.equal(a.best.model[k], b.best.model[k]) for k in a.best.model)


def test_a_run_stops_by_the_validation_part_and_says_so(digits: Pooled) -> None:
    whole = run(digits, evaluate=Evaluate(keep="best"))
    values = [row["validation_accuracy"] for row in whole.rows]
    at = next(r for r, value in enumerate(values) if value >= values[3])
    stopped = run(digits, evaluate=Evaluate(stop=f"accuracy >= {values[3]!r}"))
    assert [row["round"] for row in stopped.rows] == list(range(at + 1))
    assert bare(stopped) == bare(whole)[: at + 1]
    assert stopped.stopped is not None
    assert stopped.stopped.endswith("(on the validation part)")
    assert not stopped.interrupted


def test_a_run_that_stops_by_the_test_set_is_marked(digits: Pooled) -> None:
    stopped = run(digits, evaluate=Evaluate(stop="accuracy >= 0.1", signal="test", every=4))
    assert "on the test set, so the test figures of this model are optimistic" in str(stopped.stopped)
    assert "validation_loss" not in stopped.rows[-1]
    assert run(digits, evaluate=Evaluate(stop="round >= 2")).stopped == "round >= 2"


def test_a_score_stops_a_run_by_the_test_set(digits: Pooled) -> None:
    scored = digits.with_task(fedalpha.Task(scores="f1"))
    with pytest.raises(
        ValueError, match="f1 is measured on the test set; stop by accuracy or loss, or set signal=test"
    ):
        run(scored, evaluate=Evaluate(stop="f1 >= 0.01"))
    stopped = run(scored, evaluate=Evaluate(stop="f1 >= 0.01", signal="test", every=4))
    assert "on the test set" in str(stopped.stopped)
    values = fedalpha.federation((np.eye(4, dtype="float32").repeat(10, 0), np.arange(40) / 40), clients=2, task="mse")
    values = values.with_task(fedalpha.Task(loss=torch.nn.functional.mse_loss, correct=None, scores="r2"))
    found = fedalpha.run(values, torch.nn.Sequential(torch.nn.Linear(4, 1), torch.nn.Flatten(0)), rounds=2,
                         evaluate=Evaluate(stop="r2 <= 1", signal="test"))  # fmt: skip
    assert found.stopped is not None


@pytest.mark.parametrize(
    ("stop", "remedy"),
    [
        ("f1 >= 0.5", "scores = 'r2, f1'"),
        ("round >= 3 or patience(f1, rounds=2)", "scores = 'r2, f1'"),
        ("time >= 9", "clock="),
        ("worst_tenth_accuracy >= 0.5", "clock="),
        ("secure_error >= 1", "secure = masked"),
    ],
)
def test_a_condition_on_what_the_run_does_not_measure_is_refused(digits: Pooled, stop: str, remedy: str) -> None:
    scored = digits.with_task(fedalpha.Task(scores="r2"))
    with pytest.raises(ValueError, match=rf"the rows of this run have no (f1|time|\w+); .*{remedy}"):
        run(scored, evaluate=Evaluate(stop=stop, signal="test"))


def test_the_row_of_an_early_end_is_tested(digits: Pooled) -> None:
    stopped = run(digits, evaluate=Evaluate(every=5, stop="round >= 2"))
    assert [row["accuracy"] is None for row in stopped.rows] == [False, True, False]


def test_the_best_model_is_that_of_its_round(digits: Pooled) -> None:
    update = "sgd(lr=exponential(0.05, rate=20))"  # grows until the model gets worse
    whole = run(digits, update=update, evaluate=Evaluate(keep="best(loss)"))
    losses = [row["validation_loss"] for row in whole.rows]
    best = int(np.argmin(losses))
    assert whole.rows[-1]["best_round"] == best < 6
    assert whole.best is not None
    assert whole.best.row is whole.rows[best]
    short = run(digits, update=update, rounds=best)
    assert all(torch.equal(whole.best.model[k], short.model[k]) for k in short.model)
    assert bare(whole) == bare(run(digits, update=update))


@pytest.mark.parametrize("killed", [0, 2, 4])
def test_a_resumed_run_stops_at_the_same_round_with_the_same_best_model(
    digits: Pooled, tmp_path: Path, killed: int
) -> None:
    watch = Evaluate(stop="round >= 4 or patience(loss, rounds=5)", keep="best(loss)", shadow=["FedSoftWorse(T=0.2)"])

    def go(name: str | None, *callbacks: Callback) -> History:
        out = None if name is None else Folder(tmp_path / name, every=2)
        return run(digits, update="sgd(lr=exponential(0.05, rate=20))", evaluate=watch, out=out, callbacks=callbacks)

    whole = go("whole")
    with pytest.raises(ZeroDivisionError):
        go("killed", Kill(killed))
    again = go("killed")
    assert without_times(again) == without_times(whole)
    assert same_model(again, whole)
    assert same_best(again, whole)
    assert len(again.rows) == 5
    for name in ("model.safetensors", "best.safetensors"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    finished = go("killed", Kill(0))  # read, not run
    assert same_best(finished, whole)
    assert same_best(read(tmp_path / "killed"), whole)
    (tmp_path / "killed" / "best.safetensors").write_bytes(b"damaged")
    assert same_best(go("killed"), whole)  # made again from the checkpoint


def test_a_condition_that_held_when_the_run_was_killed_holds_afterwards(digits: Pooled, tmp_path: Path) -> None:
    class KillAtTheEnd(Callback):
        def on_end(self, history: History) -> None:
            raise ZeroDivisionError

    stop = StopWhen("round >= 2")
    with pytest.raises(ZeroDivisionError):
        run(digits, out=tmp_path, callbacks=[stop, KillAtTheEnd()])
    assert not (tmp_path / "model.safetensors").exists()
    assert [row["round"] for row in run(digits, out=tmp_path, callbacks=[stop]).rows] == [0, 1, 2]


def test_a_run_without_anything_watched_saves_what_it_always_did(digits: Pooled, tmp_path: Path) -> None:
    run(digits, rounds=1, out=tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert not config.keys() & {"stop", "keep", "shadow"}
    assert not (tmp_path / "best.safetensors").exists()
    tree = next((tmp_path / "checkpoint").glob("*.safetensors")).read_bytes()
    assert b'"watch"' not in tree
    assert len((tmp_path / "checkpoint" / "finished").read_text().split()) == 1


def test_a_function_that_reads_what_was_not_measured_does_not_hold(digits: Pooled) -> None:
    history = run(digits, rounds=7, evaluate=5, callbacks=[StopWhen(lambda row: row["accuracy"] >= 0.3)])
    assert [row["round"] for row in history.rows] == [0, 1, 2, 3, 4, 5]
    history = run(digits, rounds=3, evaluate=5, callbacks=[StopWhen(lambda row: row["round"] == 1)])
    assert len(history.rows) == 2
    with pytest.raises(KeyError, match="acuracy"):
        run(digits, rounds=1, callbacks=[StopWhen(lambda row: row["acuracy"] >= 0.3)])


def test_shadow_rules_change_no_byte_and_weigh_as_if_alone(digits: Pooled) -> None:
    shadows = ["FedAvg", "FedSoftWorse(T=0.2)", "FedSoftBetter(T=0.2, loss=train)"]
    plain = run(digits, "FedAvg", rounds=3, select="uniform(C=0.5)")
    beside = run(digits, "FedAvg", rounds=3, select="uniform(C=0.5)", evaluate=Evaluate(shadow=shadows))
    assert bare(beside) == without_times(plain)
    assert same_model(beside, plain)
    assert "shadow" not in beside.rows[0]
    softly = run(digits, "FedSoftWorse(T=0.2)", rounds=1, select="uniform(C=0.5)")
    first = beside.rows[1]["shadow"]
    assert list(first) == shadows
    assert first["FedAvg"]["distance"] == 0
    assert first["FedAvg"]["alpha"] == beside.rows[1]["alpha"]
    assert first["FedSoftWorse(T=0.2)"]["alpha"] == softly.rows[1]["alpha"]  # the same model and cohort in round 1
    assert first["FedSoftWorse(T=0.2)"]["effective_clients"] == softly.rows[1]["effective_clients"]
    alpha, other = (np.array(beside.rows[1][k]) for k in ("alpha",)), first["FedSoftWorse(T=0.2)"]
    assert other["distance"] == pytest.approx(np.abs(next(alpha) - other["alpha"]).sum() / 2)


def test_a_shadow_rule_has_a_state_of_its_own_that_is_resumed(digits: Pooled, tmp_path: Path) -> None:
    rule = "FedSoftWorse(T=0.2, optima=estimated)"  # remembers the least loss of each client
    watch = Evaluate(shadow=[rule])
    whole = run(digits, rule, rounds=3, evaluate=watch)
    assert all(row["shadow"][rule]["distance"] == 0 for row in whole.rows[1:])
    beside = run(digits, "FedAvg", rounds=3, evaluate=watch)
    with pytest.raises(ZeroDivisionError):
        run(digits, "FedAvg", rounds=3, evaluate=watch, out=tmp_path, callbacks=[Kill(2)])
    assert without_times(run(digits, "FedAvg", rounds=3, evaluate=watch, out=tmp_path)) == without_times(beside)


def test_what_a_round_lacks_is_recorded_with_the_reason(digits: Pooled) -> None:
    rule = "FedSoftWorse(T=0.2, loss=train)"
    history = run(digits, "FedWorse(k=2)", rounds=2, evaluate=Evaluate(shadow=[rule]))  # most clients do not train
    assert "no loss (train) of client" in history.rows[1]["shadow"][rule]["missing"]
    kept = run(digits, rounds=1, fault="drop(p=1.0)", evaluate=Evaluate(shadow=["FedWorse"]))
    assert "the model was kept" in kept.rows[1]["shadow"]["FedWorse"]["missing"]


def test_clients_that_are_refused_would_have_been_absent(digits: Pooled) -> None:
    liar = run(digits, rounds=1, fault="lie(clients=[3], loss=-1)", evaluate=Evaluate(shadow=["FedSoftWorse(T=0.2)"]))
    found = liar.rows[1]["shadow"]["FedSoftWorse(T=0.2)"]["alpha"]
    alone = run(digits, "FedSoftWorse(T=0.2)", rounds=1, fault="lie(clients=[3], loss=-1)").rows[1]
    assert found[3] == 0
    assert found[:3] + found[4:] == alone["alpha"]


@pytest.mark.parametrize(
    ("watch", "reason"),
    [
        ({"shadow": ["FedNova"]}, "looks at steps, which a round of FedAvg does not measure"),
        ({"shadow": ["FedWorse", "FedWorse()"]}, "given twice"),
        ({"shadow": ["FedWorst"]}, "did you mean"),
        ({"stop": "worst_client_accuracy >= 0.5"}, "measured on the test set"),
        ({"keep": "first"}, "not one of last, best"),
        ({"stop": "accuracy = 3"}, "not a condition"),
    ],
)
def test_what_cannot_be_watched_is_refused_before_the_run(digits: Pooled, watch: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        run(digits, evaluate=Evaluate(**watch))


def test_without_a_validation_part() -> None:
    plain = fedalpha.federation("digits", clients=4)
    for watch in (
        {"stop": "accuracy >= 0.5"},
        {"keep": "best"},
        {"shadow": ["switch(FedWorse, FedAvg, accuracy=0.5)"]},
    ):
        with pytest.raises(ValueError, match=r"no validation part; build it with validation=0\.1"):
            run(plain, evaluate=Evaluate(**watch))  # type: ignore[arg-type]
    assert run(plain, rounds=1, evaluate=Evaluate(stop="round >= 1", shadow=["FedWorse"])).stopped == "round >= 1"


def test_without_an_accuracy() -> None:
    no_accuracy = fedalpha.federation("digits", clients=4, validation=0.1, task=fedalpha.Task(correct=None))
    with pytest.raises(ValueError, match=r"keep=\"best\(loss\)\""):
        run(no_accuracy, evaluate=Evaluate(keep="best"))
    assert run(no_accuracy, rounds=1, evaluate=Evaluate(keep="best(loss)")).best is not None
