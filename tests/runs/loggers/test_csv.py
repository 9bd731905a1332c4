"""The table that the csv logger writes, also over a resume."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import fedalpha
from commands import fedalpha as command
from fedalpha.analysis.history import History, Row
from fedalpha.data.federations import Federation
from fedalpha.round import ServerState
from fedalpha.runs.callbacks import Callback


class Stop(Callback):
    """Interrupts a run after a round, before the folder has saved it."""

    def __init__(self, after: int) -> None:
        self.after = after

    def on_round(self, row: Row, state: ServerState) -> bool | None:
        if row["round"] == self.after:
            raise KeyboardInterrupt
        return None


@pytest.fixture(scope="module")
def digits() -> Federation:
    return fedalpha.federation("digits", partition="iid", clients=4)


def run(digits: Federation, file: Path, out: Path, *callbacks: Callback) -> History:
    log = f"csv({str(file)!r})"
    return fedalpha.run(
        digits, "softmax", rounds=4, evaluate=2, engine="embedded(workers=1)", out=out, callbacks=[log, *callbacks]
    )


def table(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(file.open(newline="")))


def agrees(lines: list[dict[str, str]], rows: list[Row]) -> bool:
    """Whether the table holds the single numbers of the rows, and an empty field where there is none."""
    for line, row in zip(lines, rows, strict=True):
        numbers = {k: v for k, v in row.items() if isinstance(v, int | float)}
        if {k: float(v) for k, v in line.items() if v} != numbers:
            return False
    return True


def test_every_number_of_every_row_is_there(digits: Federation, tmp_path: Path) -> None:
    history = run(digits, tmp_path / "new" / "rounds.csv", tmp_path / "run")
    lines = table(tmp_path / "new" / "rounds.csv")
    assert agrees(lines, history.rows)
    assert [line["accuracy"] != "" for line in lines] == [True, False, True, False, True]
    assert not {"alpha", "cohort", "losses", "kept"} & lines[0].keys()
    assert list(lines[0])[-1] == "seconds"


def test_a_row_is_in_the_file_when_its_round_is_over(digits: Federation, tmp_path: Path) -> None:
    seen = []

    class Look(Callback):
        def on_round(self, row: Row, state: ServerState) -> bool | None:
            seen.append([line["round"] for line in table(tmp_path / "a.csv")])
            return None

    run(digits, tmp_path / "a.csv", tmp_path / "run", Look())
    assert seen == [[str(r) for r in range(n + 1)] for n in range(5)]


def test_a_resumed_run_has_every_round_once(digits: Federation, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt, match="after round 2; the same call resumes it"):
        run(digits, tmp_path / "a.csv", tmp_path / "run", Stop(2))
    history = run(digits, tmp_path / "a.csv", tmp_path / "run")
    assert [line["round"] for line in table(tmp_path / "a.csv")] == ["0", "1", "2", "3", "4"]
    assert agrees(table(tmp_path / "a.csv"), history.rows)


def test_it_changes_no_byte_of_the_run(digits: Federation, tmp_path: Path) -> None:
    run(digits, tmp_path / "a.csv", tmp_path / "logged")
    fedalpha.run(digits, "softmax", rounds=4, evaluate=2, engine="embedded(workers=1)", out=tmp_path / "plain")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "logged" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()


def test_it_is_named_on_the_command_line(tmp_path: Path) -> None:
    small = ("--clients", "4", "--rounds", "1", "--workers", "1", "--model", "softmax")
    done = command("run", *small, "--log", "csv(a.csv)", "--log", "csv('b/c.csv')", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    assert agrees(table(tmp_path / "a.csv"), rows)
    assert agrees(table(tmp_path / "b" / "c.csv"), rows)
    wrong = command("run", *small, "--log", "cvs(a.csv)", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "unknown logger 'cvs'; did you mean 'csv'?" in wrong.stderr


def test_compare_gives_every_run_a_logger_of_its_own(tmp_path: Path) -> None:
    small = ("compare", "--clients", "4", "--rounds", "1", "--workers", "1", "--model", "softmax", "--seeds", "2")
    shared = command(*small, "--log", "csv(a.csv)", cwd=tmp_path)
    assert shared.returncode == 2
    assert "write {run} in it" in shared.stderr
    done = command(*small, "--strategy", "FedWorse(k=2)", "--log", "csv('{run}.csv')", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == ["FedWorse-k=2-seed0.csv", "FedWorse-k=2-seed1.csv"]
    assert len(table(tmp_path / "FedWorse-k=2-seed1.csv")) == 2
