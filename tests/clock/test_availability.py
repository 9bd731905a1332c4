"""Availability: windows follow each other without gaps in time, and traces are checked."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from fedalpha import federation, run
from fedalpha.clock import AVAILABILITIES, Pace, Timeline

DIGITS = federation("digits", partition="iid", clients=4)
EXAMPLES = [text for entry in AVAILABILITIES for text in entry.examples]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that the example of `trace` names."""
    monkeypatch.chdir(tmp_path)
    Path("windows.csv").write_text("client,on,off\n0,10,20\n0,30,40\n1,0,5\n")


@pytest.mark.parametrize("text", EXAMPLES)
def test_windows_contain_or_follow_the_time(text: str) -> None:
    rule = AVAILABILITIES.parse(text)
    rule.check(DIGITS)
    assert AVAILABILITIES.parse(str(rule)) == rule
    for client in (0, 1):
        time = 0.0
        for _ in range(5):
            window = rule.window(3, client, time)
            assert window is not None
            on, off = window
            assert on < off
            assert off > time
            assert rule.window(3, client, max(time, on)) == window
            if math.isinf(off):
                break
            time = off


@pytest.mark.parametrize("text", ["diurnal(period=1e-300)", "diurnal(period=1e-9)", "trace('windows.csv', period=50)"])
def test_a_period_that_numbers_cannot_resolve_is_refused(text: str) -> None:
    rule = AVAILABILITIES.parse(text)
    with pytest.raises(ValueError, match="the period is too short"):
        rule.window(0, 0, 1e12)


def test_a_share_of_the_time() -> None:
    rule = AVAILABILITIES.parse("diurnal(period=10, share=0.3)")
    for client in range(3):
        times = [t / 100 for t in range(10_000)]
        there = sum(rule.window(0, client, t)[0] <= t for t in times)  # type: ignore[index]
        assert there / len(times) == pytest.approx(0.3, abs=0.01)


def test_a_trace_by_hand() -> None:
    once = AVAILABILITIES.parse("trace('windows.csv')")
    assert [once.window(0, 0, t) for t in (0, 10, 19.9, 20, 39, 40)] == [
        (10, 20), (10, 20), (10, 20), (30, 40), (30, 40), None,
    ]  # fmt: skip
    assert once.window(0, 2, 0) is None
    again = AVAILABILITIES.parse("trace('windows.csv', period=50)")
    assert again.window(0, 0, 45) == (60, 70)
    assert again.window(0, 1, 105) == (150, 155)


def test_intervals_that_touch_are_one_also_over_the_end_of_a_period() -> None:
    """A night in two lines: a client that trains at midnight does not go offline."""
    Path("windows.csv").write_text("client,on,off\n0,20,24\n0,0,3\n0,3,6\n1,0,24\n2,0,4\n2,4,6\n2,21,24\n2,20,21\n")
    once = AVAILABILITIES.parse("trace('windows.csv')")
    assert [once.window(0, 0, t) for t in (0, 3, 6, 24)] == [(0, 6), (0, 6), (20, 24), None]
    daily = AVAILABILITIES.parse("trace('windows.csv', period=24)")
    for client in (0, 2):
        found = [daily.window(0, client, t) for t in (0, 5.9, 6, 19, 23.9, 24, 29.9, 30)]
        assert found == [(0, 6), (0, 6), (20, 30), (20, 30), (20, 30), (20, 30), (20, 30), (44, 54)]
    assert daily.window(0, 1, 50) == (0, math.inf)
    job = Timeline(Pace.of(None, "constant(each=5)", daily), 0, DIGITS).jobs(22, 0, np.array([0, 1]))
    assert [found.lost for found in job.values()] == [None, None]


@pytest.mark.parametrize("line", ["0,5,5", "0,-1,2", "0,15,50", "0,12,13"])
def test_bad_windows_are_refused(line: str) -> None:
    with Path("windows.csv").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(ValueError, match="0 ≤ on < off and not overlap"):
        AVAILABILITIES.parse("trace('windows.csv')")


def test_the_words_of_a_header_are_not_repeated() -> None:
    Path("windows.csv").write_text("client,secret\n0,1\n")
    with pytest.raises(ValueError, match="2 columns of other names; give client,on,off"):
        AVAILABILITIES.parse("trace('windows.csv')")


def test_who_is_there_and_who_comes_next() -> None:
    timeline = Timeline(Pace.of(None, "constant", "trace('windows.csv')"), 0, DIGITS)
    present = timeline.present(2)
    assert present is not None
    assert present.tolist() == [1]
    assert timeline.next_on(2) == 10
    assert timeline.next_on(2, without=[0]) == math.inf
    everybody = Timeline(Pace.of(None, "constant"), 0, DIGITS)
    assert everybody.present(2) is None


@pytest.mark.parametrize(
    ("server", "times"),
    [  # whoever goes offline ends a round without an update, and the server then waits for the next window
        ("synchronous", [0, 4, 5, 14, 18, 20, 34, 38, 40]),
        ("buffered(K=1, concurrency=2)", [0, 4, 14, 18, 20, 34, 38, 40]),
    ],
)
def test_a_run_waits_for_clients_and_ends_when_nobody_comes_any_more(server: str, times: list[float]) -> None:
    def played(rounds: int) -> list[float]:
        history = run(
            DIGITS,
            "softmax",
            rounds=rounds,
            server=server,
            clock="constant(each=4)",
            availability="trace('windows.csv')",
            engine="embedded(workers=1)",
        )
        return [row["time"] for row in history.rows]

    assert played(len(times) - 1) == times
    with pytest.raises(ValueError, match="no client is available after 40 simulated seconds"):
        played(len(times))


def test_a_rule_that_needs_more_clients_than_are_there_keeps_the_model() -> None:
    Path("windows.csv").write_text("client,on,off\n0,0,20\n1,0,20\n2,0,4\n3,0,4\n")
    history = run(
        DIGITS,
        "softmax",
        "cap(FedAvg, 0.3)",
        rounds=2,
        clock="constant(each=4)",
        availability="trace('windows.csv')",
        engine="embedded(workers=1)",
    )
    assert [row["kept"] is None for row in history.rows[1:]] == [True, False]
    assert "cap" in history.rows[2]["kept"]
