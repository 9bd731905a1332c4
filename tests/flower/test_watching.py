"""Early stopping, the best model, shadow rules and callbacks on a live federation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping
from safetensors.numpy import load_file

from fedalpha import Evaluate, weights
from fedalpha.flower import FedAlpha
from fedalpha.runs.callbacks import Callback
from flower.test_strategy import quadratic, start_arrays

CURVE = [0.1, 0.5, 0.8, 0.6, 0.7, 0.75, 0.7]
SHADOW = "FedSoftWorse(T=2.0)"


def evaluation(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """An accuracy that rises and falls, by construction."""
    return MetricRecord({"accuracy": CURVE[server_round], "loss": 1 - CURVE[server_round]})


def start(rule: FedAlpha, grid: Any, rounds: int = 6) -> dict[str, np.ndarray]:
    found = rule.start(grid, start_arrays(), num_rounds=rounds, timeout=1, evaluate_fn=evaluation).arrays
    return {name: array.numpy() for name, array in found.items()}


def bare(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    watched = ("shadow", "best_round", "stopped", "seconds")
    return [{k: v for k, v in row.items() if k not in watched} for row in rows]


def test_a_run_stops_and_keeps_its_best_model(grid_of: Any, tmp_path: Path) -> None:
    whole = FedAlpha("FedAvg", fraction_evaluate=0.0)
    start(whole, grid_of(quadratic(), range(4)), rounds=2)
    third = whole._model()
    rule = FedAlpha(
        "FedAvg",
        fraction_evaluate=0.0,
        evaluate=Evaluate(stop="patience(accuracy, rounds=2)", keep="best"),
        out=tmp_path / "run",
    )
    start(rule, grid_of(quadratic(), range(4)))
    assert [row["round"] for row in rule.rows] == [0, 1, 2, 3, 4]
    assert rule.rows[-1]["stopped"].startswith("patience(accuracy, rounds=2) (in the evaluation of each round")
    assert rule.best is not None
    assert (rule.best.round, rule.rows[-1]["best_round"]) == (2, 2)
    stored = load_file(tmp_path / "run" / "best.safetensors")
    assert all(np.array_equal(stored[name], third[name]) for name in third)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["stop"], config["keep"]) == ("patience(accuracy, rounds=2)", "best(accuracy)")


class Kill(Callback):
    def __init__(self, round: int) -> None:
        self.round = round

    def on_round(self, row: dict[str, Any], state: object) -> None:
        if row["round"] == self.round:
            raise ZeroDivisionError


@pytest.mark.parametrize("killed", [1, 3, 4])
def test_a_killed_server_stops_at_the_same_round_with_the_same_bytes(grid_of: Any, tmp_path: Path, killed: int) -> None:
    watch = Evaluate(stop="patience(accuracy, rounds=2)", keep="best", shadow=["FedSoftWorse(T=2, optima=estimated)"])

    def rule(name: str, *callbacks: Callback) -> FedAlpha:
        out = tmp_path / name
        return FedAlpha("FedAvg", fraction_evaluate=0.0, evaluate=watch, out=out, callbacks=callbacks)

    whole = rule("whole")
    start(whole, grid_of(quadratic(), range(4)))
    with pytest.raises(ZeroDivisionError):
        start(rule("killed", Kill(killed)), grid_of(quadratic(), range(4)))
    again = rule("killed")
    start(again, grid_of(quadratic(), range(4), first_node=7))
    left_out = ("seconds", "nodes")  # other nodes
    assert [{k: v for k, v in row.items() if k not in left_out} for row in again.rows] == [
        {k: v for k, v in row.items() if k not in left_out} for row in whole.rows
    ]
    for name in ("model.safetensors", "best.safetensors"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_shadow_rules_ask_for_losses_and_change_no_byte(grid_of: Any) -> None:
    plain, grid = FedAlpha("FedAvg", fraction_evaluate=0.0), grid_of(quadratic(), range(4))
    alone = start(plain, grid, rounds=3)
    watch = Evaluate(shadow=["FedAvg", SHADOW, "FedSoftWorse(T=2.0, loss=train)"])
    rule = FedAlpha("FedAvg", fraction_evaluate=0.0, evaluate=watch)
    grid = grid_of(quadratic(), range(4))
    beside = start(rule, grid, rounds=3)
    assert all(alone[name].tobytes() == beside[name].tobytes() for name in alone)
    assert bare(rule.rows) == bare(plain.rows)
    assert sum(kind == "query.loss" for kind, _ in grid.log) == 3 * 4
    softly = FedAlpha(SHADOW, fraction_evaluate=0.0)
    start(softly, grid_of(quadratic(), range(4)), rounds=1)
    found = rule.rows[1]["shadow"]
    assert found["FedAvg"]["distance"] == 0
    assert found[SHADOW]["alpha"] == softly.rows[1]["alpha"]
    sizes = [10, 20, 30, 40]
    assert found["FedSoftWorse(T=2.0, loss=train)"]["alpha"] == weights(SHADOW, [0, 1, 2, 3], sizes).tolist()


def test_a_node_that_does_not_answer_the_shadows_question_is_not_refused(grid_of: Any) -> None:
    grid = grid_of(quadratic(), range(4))
    grid.spoil = lambda node, message, reply: None if message.metadata.message_type == "query.loss" else reply
    rule = FedAlpha("FedAvg", fraction_evaluate=0.0, evaluate=Evaluate(shadow=[SHADOW]), query_timeout=0.1)
    start(rule, grid, rounds=1)
    assert rule.rows[1]["refused"] == []
    assert "no client gave a usable loss" in rule.rows[1]["shadow"][SHADOW]["missing"]


def test_callbacks_see_every_row_and_may_stop_the_run(grid_of: Any, tmp_path: Path) -> None:
    from fedalpha.runs.callbacks import StopWhen

    path = tmp_path / "events.jsonl"
    callbacks = [f"jsonlog('{path}')", StopWhen("round >= 2")]
    rule = FedAlpha("FedAvg", fraction_evaluate=0.0, callbacks=callbacks)
    start(rule, grid_of(quadratic(), range(3)))
    events = [f"{line['event']} {line['round']}" for line in map(json.loads, path.read_text().splitlines())]
    assert events == ["start 0", "round 0", "round 1", "round 2", "end 2"]


def test_what_cannot_be_watched_is_refused(grid_of: Any) -> None:
    grid = grid_of(quadratic(), range(3))
    with pytest.raises(ValueError, match="looks at steps"):
        FedAlpha("FedAvg", evaluate=Evaluate(shadow=["FedNova"]))
    keeping = FedAlpha("FedAvg", fraction_evaluate=0.0, evaluate=Evaluate(keep="best"))
    with pytest.raises(ValueError, match="pass evaluate_fn= to start"):
        keeping.start(grid, start_arrays(), num_rounds=1)
    inner = FedAlpha("FedAvg", fraction_evaluate=0.0, evaluate=Evaluate(stop="round >= 1"))
    wrapper = DifferentialPrivacyServerSideFixedClipping(inner, 0.1, 1.0, 3)
    with pytest.raises(RuntimeError, match=r"needs FedAlpha\.start"):
        wrapper.start(grid, start_arrays(), num_rounds=1, timeout=1)
