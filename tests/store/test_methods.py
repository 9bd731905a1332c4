"""Methods with memory, and models that grow, go on from a checkpoint to the bytes of an undisturbed run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fedalpha
from fedalpha.analysis.history import History
from fedalpha.data import Pooled
from fedalpha.round import ServerState
from fedalpha.runs.callbacks import Callback
from fedalpha.runs.saved_state import state_tree
from fedalpha.store.tree import pack
from histories import same_model, without_times

ROUNDS, STOP = 5, 3

CASES: dict[str, dict[str, Any]] = {
    "pfnm": {"combine": "pfnm(sigma=0.01)", "select": "uniform(count=3)", "update": "sgd(lr=0.2, epochs=2)"},
    "feddist": {"combine": "feddist(spread=2.5, limit=90)", "update": "sgd(lr=0.2, epochs=2)"},
    "scaffold": {"update": "scaffold(lr=0.1)", "select": "uniform(count=5)"},
    "page": {"update": "page(lr=0.1, batch=16, steps=6, p=0.3)", "select": "uniform(count=5)"},
    "fedpage": {"update": "fedpage(lr=0.1, steps=6, p=0.5)", "select": "fedpage(count=5, p=0.5)"},
    "lbfgs": {"update": "lbfgs(lr=0.1, memory=3, steps=6)", "select": "uniform(count=4)"},
    "fedadam": {"apply": "fedadam(lr=0.01)"},
    "power_of_choice": {"select": "power_of_choice(count=4, d=8, stale=true)", "strategy": "FedAvg(prior=uniform)"},
    "AFL": {"strategy": "AFL(gamma=0.1)", "select": "uniform(count=5)"},
    "adaptive": {"strategy": "adaptive", "select": "uniform(count=5)"},
    "all at once": {
        "select": "power_of_choice(count=11, d=12, stale=true)",
        "update": "scaffold(lr=0.2, epochs=2)",
        "strategy": "FedCostWAvg",
        "combine": "feddist(spread=2.5, limit=90)",
        "apply": "fedadam(lr=0.01)",
    },
}


class Stop(Callback):
    """Ctrl-C after a round, or an error; keeps the states it sees."""

    def __init__(self, round: int | None = None, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.round, self.error = round, error
        self.states: dict[int, ServerState] = {}

    def on_round(self, row: dict[str, Any], state: ServerState) -> None:
        self.states[row["round"]] = state
        if row["round"] == self.round:
            raise self.error


def written(folder: Path) -> tuple[bytes, list[dict[str, Any]]]:
    """The model's bytes and the rows, times aside."""
    rows = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    return (folder / "model.safetensors").read_bytes(), [{k: v for k, v in r.items() if k != "seconds"} for r in rows]


def packed(state: ServerState) -> tuple[str, dict[str, bytes]]:
    """All that the server carries on, as it is saved."""
    text, tensors = pack(state_tree(state))
    return text, {name: value.tobytes() for name, value in tensors.items()}


@pytest.mark.parametrize("name", CASES)
def test_an_interrupted_run_ends_in_the_same_bytes(name: str, digits: Pooled, tmp_path: Path) -> None:
    def go(folder: str, watch: Stop) -> History:
        same = {"rounds": ROUNDS, "seed": 3, "engine": "embedded(workers=1)", **CASES[name]}
        return fedalpha.run(digits, "mlp(hidden=[24])", **same, out=tmp_path / folder, callbacks=[watch])

    undisturbed, last = Stop(), Stop()
    whole = go("whole", undisturbed)
    with pytest.raises(ZeroDivisionError):
        go("stopped", Stop(STOP, ZeroDivisionError))
    with pytest.raises(fedalpha.Interrupted):
        go("stopped", Stop(STOP + 1))
    again = go("stopped", last)
    assert sorted(last.states) == [STOP + 1, STOP + 2]  # it went on, it did not begin anew
    assert not again.interrupted
    assert same_model(again, whole)
    assert without_times(again) == without_times(whole)
    assert written(tmp_path / "stopped") == written(tmp_path / "whole")
    assert packed(last.states[ROUNDS]) == packed(undisturbed.states[ROUNDS])
    if "combine" in CASES[name]:  # the width changed before the interruption and after it
        width = [len(undisturbed.states[r].broadcast.parameters["layer1.bias"]) for r in (0, STOP, ROUNDS)]
        assert width[0] < width[1] < width[2]
