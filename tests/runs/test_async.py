"""Runs of a server that does not wait: kills, more rounds, workers, and the command line; always the same bytes."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from fedalpha import compare, federation, run
from fedalpha.analysis.measures import Measure
from fedalpha.analysis.measures.base import curve
from fedalpha.cli import app
from fedalpha.cli.run import result
from fedalpha.runs.callbacks import Callback
from fedalpha.runs.comparing import _arguments
from fedalpha.runs.experiment import plan
from fedalpha.runs.folder import Folder
from fedalpha.store import Generations
from fedalpha.study import Store, read_study

DIGITS = federation("digits", partition="shards(size=30)", clients=8)
OPTIONS: dict[str, Any] = {
    "strategy": "even(stale(FedSoftWorse(T=0.2), polynomial(a=0.5)))",
    "select": "power_of_choice(count=4, d=6)",
    "update": "scaffold(lr=0.1)",
    "clock": "jitter(flaky(rare(lognormal(sigma=1)), p=0.2), sigma=0.3)",
    "availability": "diurnal(period=40, share=0.6)",
    "server": "buffered(K=2, concurrency=5)",
    "deadline": 8.0,
}


def played(rounds: int, workers: int = 1, **options: Any) -> Any:
    return run(DIGITS, "softmax", rounds=rounds, engine=f"embedded(workers={workers})", **{**OPTIONS, **options})


def same(one: Any, other: Any) -> None:
    without = [[{k: v for k, v in row.items() if k != "seconds"} for row in history.rows] for history in (one, other)]
    assert without[0] == without[1]
    assert all(torch.equal(value, other.model[name]) for name, value in one.model.items())


class Killer(Callback):
    """Kills the process after a round."""

    def __init__(self, round: int) -> None:
        self.round = round

    def on_round(self, row: Any, state: Any) -> None:
        if row["round"] == self.round:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_with_updates_in_training_and_resumed_to_the_same_bytes(tmp_path: Path) -> None:
    whole = played(9)
    assert any(late for row in whole.rows[1:] for late in row["staleness"])
    in_training = 0
    for killed in (2, 5, 8):  # the round before it is the last one that is saved
        pid = os.fork()
        if pid == 0:
            try:
                played(9, out=tmp_path / "run", callbacks=[Killer(killed)])
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        found = Generations(tmp_path / "run" / "checkpoint").load()
        assert found is not None
        clock = found[0]["clock"]
        in_training += len(clock["flights"])
        versions = {flight["version"] for flight in clock["flights"].values()}
        assert set(clock["versions"]) == versions  # a model for each version that somebody trains from, and no more
    assert in_training
    same(played(9, out=tmp_path / "run"), whole)


def test_more_rounds_later_give_the_same_bytes() -> None:
    same(played(3).continue_(rounds=7), played(7))


def test_workers_change_nothing() -> None:
    same(played(5, workers=2), played(5))


def test_a_forged_version_is_refused(tmp_path: Path) -> None:
    played(3, out=tmp_path / "run")
    generations = Generations(tmp_path / "run" / "checkpoint")
    found = generations.load()
    assert found is not None
    tree, rows, _ = found
    for sent in tree["clock"]["versions"].values():
        sent["parameters"] = {name: value[:1] for name, value in sent["parameters"].items()}
    generations.clear()
    generations.save(3, tree, rows)
    with pytest.raises(RuntimeError, match="a version that clients train from has other parameters"):
        played(4, out=tmp_path / "run")


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is not over, with several clients in training."""
    folder = tmp_path_factory.mktemp("async") / "run"
    played(3, out=folder)
    return folder


def flight(tree: Any) -> Any:
    return next(iter(tree["clock"]["flights"].values()))


def fly(tree: Any, id: Any) -> None:
    copy = dict(flight(tree))
    tree["clock"]["flights"].pop(id, None)  # client 1 is not replaced by True, which is equal to it
    tree["clock"]["flights"][id] = copy


FORGERIES: dict[str, Callable[[Any, list[Any]], Any]] = {
    "no time": lambda tree, rows: tree["clock"].pop("time"),
    "no flights": lambda tree, rows: tree["clock"].pop("flights"),
    "flights in a list": lambda tree, rows: tree["clock"].update(flights=[1]),
    "an endless time": lambda tree, rows: tree["clock"].update(time=math.inf),
    "a time before the start": lambda tree, rows: tree["clock"].update(time=-1.0),
    "a time in words": lambda tree, rows: tree["clock"].update(time="1"),
    "a time beyond float64": lambda tree, rows: tree["clock"].update(time=10**400),
    "a missing key": lambda tree, rows: flight(tree).pop("lost"),
    "another key": lambda tree, rows: flight(tree).update(x=1),
    "a client in words": lambda tree, rows: fly(tree, "x"),
    "a client that is true": lambda tree, rows: fly(tree, True),
    "a client beyond the population": lambda tree, rows: fly(tree, 8),
    "a client below 0": lambda tree, rows: fly(tree, -1),
    "a client beyond int64": lambda tree, rows: fly(tree, 2**70),
    "a version to come": lambda tree, rows: flight(tree).update(version=4),
    "a version below 0": lambda tree, rows: flight(tree).update(version=-1),
    "a version that is true": lambda tree, rows: flight(tree).update(version=True),
    "a version that is not kept": lambda tree, rows: tree["clock"]["versions"].pop(flight(tree)["version"]),
    "a version in words": lambda tree, rows: flight(tree).update(version="1"),
    "an end in words": lambda tree, rows: flight(tree).update(end="1"),
    "no end": lambda tree, rows: flight(tree).update(end=math.nan),
    "a reason that is no text": lambda tree, rows: flight(tree).update(lost=[1]),
    "a long reason": lambda tree, rows: flight(tree).update(lost="x" * 10**6),
    "a loss in words": lambda tree, rows: flight(tree).update(before="1"),
    "a version of nobody": lambda tree, rows: tree["clock"]["versions"].update(
        {9: next(iter(tree["clock"]["versions"].values()))}
    ),
    "a version without extras": lambda tree, rows: next(iter(tree["clock"]["versions"].values())).pop("extras"),
    "extras of another shape": lambda tree, rows: next(iter(tree["clock"]["versions"].values())).update(
        extras={"scaffold.layer.weight": torch.zeros(1)}
    ),
    "extras that are no arrays": lambda tree, rows: tree["broadcast"].update(extras={"x": 1}),
    "a state of a client beyond the population": lambda tree, rows: tree["clients"].update({8: {}}),
    "states of clients in a list": lambda tree, rows: tree.update(clients=[]),
    "a state of a client in words": lambda tree, rows: tree["clients"].update({0: "x"}),
    "another round than its rows": lambda tree, rows: tree.update(round=2),
    "a round that is true": lambda tree, rows: tree.update(round=True),
    "a row with NaN": lambda tree, rows: rows[-1].update(accuracy=math.nan),
    "a row with words": lambda tree, rows: rows[-1].update(loss="x"),
    "a best model of a round to come": lambda tree, rows: tree.update(watch={"best": {"round": 9, "model": {}}}),
}


@pytest.mark.parametrize("kind", FORGERIES)
def test_a_forged_state_falls_back_to_the_older_one(
    given: Path, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its checksums are valid: they show that it is whole, not who wrote it."""
    folder = Path(shutil.copytree(given, tmp_path / "run"))
    generations = Generations(folder / "checkpoint")
    found = generations.load()
    assert found is not None
    tree, rows, _ = found
    rules = {"model": "softmax", "rounds": 4, **{k: v for k, v in OPTIONS.items() if k != "strategy"}}
    start = plan(DIGITS, **{**_arguments(rules), "strategy": OPTIONS["strategy"], "seed": 0}).start()
    FORGERIES[kind](tree, rows)
    generations.save(3, tree, rows)
    resumed = Folder(folder, {"clients": 8, "rounds": 4}).resume(start, 8)
    assert resumed is not None
    assert ".json is damaged" in caplog.text
    assert len(caplog.text) < 2_000
    assert resumed[0].clock["flights"]
    assert resumed[0].round == resumed[1][-1]["round"] == 3


def test_a_forged_state_of_a_rule_is_a_short_error(tmp_path: Path) -> None:
    """Only the rule knows what it has written."""
    options: dict[str, Any] = {"strategy": "switch(FedAvg, FedWorse, accuracy=0.99)", "engine": "embedded(workers=1)"}
    data = federation("digits", clients=2, validation=0.1)
    run(data, "softmax", rounds=1, out=tmp_path / "run", **options)
    generations = Generations(tmp_path / "run" / "checkpoint")
    found = generations.load()
    assert found is not None
    tree, rows, _ = found
    tree["weigh"]["stage"] = 99
    generations.save(1, tree, rows)
    with pytest.raises(ValueError, match="round 2 cannot be played from the saved state: IndexError"):
        run(data, "softmax", rounds=2, out=tmp_path / "run", **options)


def test_the_command_line_plays_a_run_and_resumes_it_from_a_settings_file(tmp_path: Path) -> None:
    words = [word for key, value in OPTIONS.items() for word in (f"--{key}", str(value))]
    common = ["--clients", "8", "--model", "softmax", "--workers", "1", "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(app, ["run", *words, *common, "--rounds", "2"])
    assert done.exit_code == 0, done.output
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert {name: config[name] for name in ("clock", "availability", "server")} == {
        name: OPTIONS[name] for name in ("clock", "availability", "server")
    }
    file = tmp_path / "run.toml"
    file.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in OPTIONS.items()))
    done = CliRunner().invoke(app, ["run", str(file), *common, "--rounds", "4"])
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    whole = played(4)
    for row, other in zip(rows, whole.rows, strict=True):
        assert {k: v for k, v in row.items() if k != "seconds"} == {k: v for k, v in other.items() if k != "seconds"}


def test_a_run_without_simulated_time_is_described_as_before(tmp_path: Path) -> None:
    run(DIGITS, "softmax", rounds=1, engine="embedded(workers=1)", out=tmp_path / "run", server="synchronous")
    text = (tmp_path / "run" / "config.json").read_text()
    assert not any(f'"{name}"' in text for name in ("clock", "availability", "server"))
    row = json.loads((tmp_path / "run" / "history.jsonl").read_text().splitlines()[1])
    assert not row.keys() & {"time", "staleness", "worst_tenth_accuracy"}


def test_a_study_plays_the_same_runs(tmp_path: Path) -> None:
    """Cells from a TOML file, with a hybrid that goes on from the state of its first rule; the table has T_p."""
    rules = {key: value for key, value in OPTIONS.items() if key not in ("strategy", "select", "update")}
    lines = [f"{key} = {json.dumps(value)}" for key, value in rules.items()]
    hybrid = "switch(FedSoftWorse(T=0.2), FedAvg, at=3)"
    file = tmp_path / "async.toml"
    file.write_text(
        f"""name = "async"
strategies = ["FedSoftWorse(T=0.2)", "{hybrid}"]
seeds = 1
per_client = "all"
measures = ["T_20", "accuracy@9s", "worst_tenth_accuracy@9s", "auc@9s"]
[settings]
partition = "shards(size=30)"
clients = 8
model = "softmax"
rounds = 6
clock = "lognormal(sigma=1)"
[[cases]]
name = "waits"
[[cases]]
name = "does not wait"
{chr(10).join(lines)}
"""
    )
    done = CliRunner().invoke(app, ["study", str(file), "--out", str(tmp_path / "out"), "--jobs", "1"])
    assert done.exit_code == 0, done.output
    assert "T_20 (simulated s)" in " ".join(done.output.split())
    store, cells = Store(tmp_path / "out"), read_study(file).cells()
    assert len(cells) == 4
    for cell in cells:
        whole = run(
            DIGITS,
            "softmax",
            cell.strategy,
            rounds=6,
            engine="embedded(workers=1)",
            **({"clock": "lognormal(sigma=1)"} if cell.case == "waits" else rules),
        )
        found = store.get(cell.key)
        for name in ("time", "accuracy", "staleness", "cohort"):
            if name in whole.rows[1]:
                assert list(found.columns[name]) == [row[name] for row in whole.rows], name
        measured = Measure.parse("T_20").of(curve(whole.rows))
        assert measured is not None
        assert f"{measured.value:.2f}" in done.output
    assert any("shares" in store.get(cell.key).about for cell in cells)


def test_a_comparison_shows_simulated_time() -> None:
    found = compare(
        DIGITS, ["FedAvg", "FedSoftWorse(T=0.2)"], seeds=1, rounds=2, model="softmax", clock="constant(each=2)",
        engine="embedded(workers=1)", target=0.2,
    )  # fmt: skip
    assert "T_20 (simulated s)" in found.table()
    history = found["FedAvg"][0]
    summary = history.summary(0.1)
    assert (summary["T_10"], summary["time"]) == (2.0 * history.rounds_to(0.1), 4.0)
    assert result(history).endswith(f"; 4 simulated seconds, T_60 {'–' if history.rounds_to(0.6) is None else 4}")
