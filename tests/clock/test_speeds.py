"""Clocks: every example gives times > 0 that depend on nothing but seed, round and client."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedalpha import federation
from fedalpha.clock import CLOCKS, Clock, Pace, Timeline
from fedalpha.clock.speeds import Moment

DIGITS = federation("digits", partition="shards(size=30)", clients=12)
IDS = np.arange(12)
EXAMPLES = [text for entry in CLOCKS for text in entry.examples]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that the example of `trace` names."""
    monkeypatch.chdir(tmp_path)
    lines = [f"{client},{client + 1},0.5" for client in range(12)]
    Path("speeds.csv").write_text("\n".join(["client,compute,transfer", *lines, "3,7,1"]) + "\n")


@pytest.mark.parametrize("text", EXAMPLES)
def test_times_are_positive_and_depend_on_the_client_alone(text: str) -> None:
    clock = CLOCKS.parse(text)
    clock.check(DIGITS)
    assert CLOCKS.parse(str(clock)) == clock
    moment = Moment(5, 2, DIGITS)
    every = clock.seconds(moment, IDS)
    assert (every > 0).all()
    some = np.array([7, 3])
    assert clock.seconds(moment, some).tolist() == every[some].tolist()
    drops = clock.drops(moment, IDS)
    assert clock.drops(moment, some).tolist() == pytest.approx(drops[some].tolist(), nan_ok=True)
    assert (np.isnan(drops) | ((drops >= 0) & (drops <= 1))).all()


def test_slow_clients_hold_rare_classes() -> None:
    moment = Moment(0, 0, DIGITS)
    plain = CLOCKS.parse("lognormal(sigma=1)").seconds(moment, IDS)
    given = CLOCKS.parse("rare(lognormal(sigma=1))").seconds(moment, IDS)
    assert sorted(given) == sorted(plain)
    counts = DIGITS.label_counts
    assert counts is not None
    shares = counts.sum(axis=0) / counts.sum()
    rareness = counts @ -np.log(shares) / counts.sum(axis=1)
    assert np.argsort(rareness).tolist() == np.argsort(given).tolist()
    reverse = CLOCKS.parse("rare(lognormal(sigma=1), correlation=-1)").seconds(moment, IDS)
    assert np.argsort(-rareness).tolist() == np.argsort(reverse).tolist()


def test_draws_of_computing_and_of_transfer_are_independent() -> None:
    moment = Moment(0, 0, DIGITS)
    both = CLOCKS.parse("network(exponential(mean=1), exponential(mean=1))").seconds(moment, IDS)
    one = CLOCKS.parse("exponential(mean=1)").seconds(moment, IDS)
    assert not np.isclose(both, 2 * one).any()
    assert (both > one).all()


def test_a_trace_gives_the_lines_of_a_client_in_turn() -> None:
    clock = CLOCKS.parse("trace('speeds.csv')")
    found = [clock.seconds(Moment(0, round, DIGITS), np.array([3])).item() for round in range(4)]
    assert found == [4.5, 8.0, 4.5, 8.0]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "not a table"),
        ("a,b\n", "must name the columns, client first"),
        ("client,seconds\n", "no line below its header"),
        ("client,seconds\n0,secret\n", "line 2 of speeds.csv is not a client's id and 1 finite numbers"),
        ("client,seconds\n0,nan\n", "line 2"),
        ("client,seconds\n0,1,2\n", "line 2"),
        ("client,seconds\n-1,1\n", "line 2"),
        ("client,seconds\n0,0\n", "a time that is not > 0"),
        ("client,on\n0,1\n", "give client,compute,transfer or client,seconds"),
        ("client,secret\n0,1\n", "2 columns of other names"),
    ],
)
def test_a_bad_trace_is_refused_without_repeating_it(content: str, reason: str) -> None:
    Path("speeds.csv").write_text(content)
    with pytest.raises(ValueError, match="trace") as error:
        CLOCKS.parse("trace('speeds.csv')")
    assert reason in str(error.value)
    assert "secret" not in str(error.value)


def test_a_trace_is_known_by_its_content() -> None:
    text = str(CLOCKS.parse("trace('speeds.csv')"))
    assert CLOCKS.parse(text) == CLOCKS.parse("trace('speeds.csv')")
    Path("speeds.csv").write_text("client,seconds\n0,1\n")
    with pytest.raises(ValueError, match="not the file with which this clock was first used"):
        CLOCKS.parse(text)
    with pytest.raises(ValueError, match="no line for 11 clients, for example client 1"):
        CLOCKS.parse("trace('speeds.csv')").check(DIGITS)
    with pytest.raises(ValueError, match=r"cannot read the clock nowhere\.csv: there is no such file"):
        CLOCKS.parse("trace('nowhere.csv')")


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="Linux")
@pytest.mark.parametrize("name", ["/proc/kmsg", "/proc/self/status", "/dev/zero", "fifo"])
def test_only_regular_files_are_read(name: str) -> None:
    """A file of /proc has no size, and reading it may not end."""
    os.mkfifo("fifo")
    with pytest.raises(ValueError, match=r"trace: .*(there is no such file|is not a table|Permission denied)"):
        CLOCKS.parse(f"trace({name!r})")


@pytest.mark.parametrize(
    "text",
    [
        "constant(each=0)",
        "lognormal(sigma=-1)",
        "lognormal(sigma=21)",
        "exponential(mean=inf)",
        "flaky(constant, p=2)",
        "rare(constant, correlation=3)",
        "jitter(constant, sigma=0)",
    ],
)
def test_bad_arguments_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="give a"):
        CLOCKS.parse(text)


class Given(Clock):
    """Times and dropouts as they are given."""

    took: tuple[float, ...] = ()
    share: float = float("nan")

    def seconds(self, moment: Moment, ids: Any) -> Any:
        return np.array([self.took[i] for i in ids.tolist()])

    def drops(self, moment: Moment, ids: Any) -> Any:
        return np.full(len(ids), self.share)


def test_what_happens_first_decides() -> None:
    def job(took: float, share: float = float("nan"), deadline: float | None = None, where: str = "always") -> Any:
        pace = Pace.of(None, Given(took=(took,), share=share), where)
        return Timeline(pace, 0, DIGITS, deadline).jobs(100.0, 0, np.array([0]))[0]

    assert (job(5).end, job(5).lost) == (105.0, None)
    assert job(5, share=0.5).end == 102.5
    assert job(5, share=0.5).lost == "dropped out after 2.5 s"
    assert job(5, deadline=4).end == 104
    assert job(5, deadline=4).lost == "came after 5 s; the deadline is 4 s"
    assert job(5, deadline=5).lost is None
    assert job(5, share=0.9, deadline=4).lost == "dropped out after 4.5 s; the deadline is 4 s"
    offline = job(1e6, where="diurnal(period=1000, share=0.5)")
    assert offline.lost is not None
    assert offline.lost.startswith("went offline after")


def test_time_that_grows_beyond_all_numbers_is_refused() -> None:
    timeline = Timeline(Pace.of(None, "constant(each=1e308)"), 0, DIGITS)
    assert timeline.jobs(0.0, 0, IDS)[0].end == 1e308
    with pytest.raises(ValueError, match="not a finite number > 0, after 1e"):
        timeline.jobs(1e308, 1, IDS)
