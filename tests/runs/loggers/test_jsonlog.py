"""The structured log."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

import fedalpha
from fedalpha.data import Pooled
from fedalpha.runs.callbacks import Callback
from fedalpha.runs.evaluate import Evaluate


class Fail(Callback):
    def on_round(self, row: dict[str, Any], state: object) -> None:
        if row["round"] == 1:
            raise ZeroDivisionError


def test_every_event_is_a_line(digits: Pooled, tmp_path: Path) -> None:
    def run(*callbacks: Callback) -> Any:
        return fedalpha.run(
            digits,
            "softmax",
            rounds=5,
            engine="embedded(workers=1)",
            fault="lie(clients=[3], loss=-1)",
            evaluate=Evaluate(stop="round >= 2", shadow=["FedWorse"]),
            out=tmp_path / "run",
            callbacks=[f"jsonlog('{tmp_path}/logs/events.jsonl')", *callbacks],
        )

    with pytest.raises(ZeroDivisionError):
        run(Fail())
    history = run()
    lines = [json.loads(line) for line in (tmp_path / "logs" / "events.jsonl").read_text().splitlines()]
    first = ["start 0", "round 0", "refused 1", "round 1", "end 1"]
    second = ["start 0", "resume 0", "refused 1", "round 1", "refused 2", "round 2", "stopped 2", "end 2"]
    assert [f"{line['event']} {line['round']}" for line in lines] == first + second
    assert all(datetime.datetime.fromisoformat(line["time"]).tzinfo is not None for line in lines)
    assert lines[4]["interrupted"]
    assert not lines[-1]["interrupted"]
    refused, played, stopped = lines[9:12]
    assert (refused["client"], "cannot be negative" in refused["reason"]) == (3, True)
    last = history.rows[-1]
    assert played["accuracy"] == last["accuracy"]
    assert played["shadow_distance"] == {"FedWorse": last["shadow"]["FedWorse"]["distance"]}
    assert "alpha" not in played
    assert stopped["reason"] == "round >= 2"
