"""The time that is left, by a clock of the test."""

from __future__ import annotations

from typing import Any

import pytest

from fedalpha.runs.loggers import progress
from fedalpha.runs.loggers.progress import ShowProgress


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


def row(round: int) -> dict[str, Any]:
    return {"round": round, "accuracy": None}


def test_rounds_that_are_not_played_now_take_no_part_in_the_pace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    shown = ShowProgress("run", total=40)  # four runs of ten rounds
    shown.after_run(10)  # the first one was finished before
    shown.on_start(10)
    shown.on_resume([row(8)])
    for played in (9, 10):
        clock.now += 3
        shown.on_round(row(played), None)  # type: ignore[arg-type]
    assert capsys.readouterr().out.splitlines()[-1] == "run  round 10/10    60 s left"
    shown.after_run(10)
    shown.on_start(10)
    shown.on_round(row(0), None)  # type: ignore[arg-type]
    shown.after_run(10)  # it stopped after round 0
    shown.on_start(10)
    for played in range(1, 11):
        clock.now += 3
        shown.on_round(row(played), None)  # type: ignore[arg-type]
    assert capsys.readouterr().out.splitlines()[-1] == "run  round 10/10  "
