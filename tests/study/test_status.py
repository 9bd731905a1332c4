"""How far a study is: counts, and the time that the rest will take."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from fedalpha.study import Store, run_study, status, study
from fedalpha.study.cells import Cell
from fedalpha.study.crew import note_time
from fedalpha.study.runner import plan

VALUES: dict[str, Any] = {
    "name": "timed",
    "strategies": ["FedAvg", "FedWorse", "FedAvgSoftWorse(at=6)"],
    "seeds": 2,
    "settings": {"dataset": "digits", "clients": 4, "model": "softmax", "rounds": 10, "lr": 0.1},
}


def begun(folder: Path, **changes: Any) -> list[Cell]:
    """A folder as a study that has just been started leaves it; its cells."""
    found = study({**VALUES, **changes})
    Store(folder).log.mkdir(parents=True)
    Store(folder).write_plan("", plan(found, found.cells()))
    return found.cells()


def say_running(folder: Path, cell: Cell, round: int, seconds: float, begun: int = 0) -> None:
    now = time.time()
    record = {"pid": os.getpid(), "started": now - seconds, "time": now, "begun": begun, "round": round}
    record |= {"rounds": cell.settings.rounds, "accuracy": 0.5, "label": cell.label}
    (Store(folder).log / f"{cell.key}.running").write_text(json.dumps(record))


def test_the_rest_takes_its_rounds_at_the_pace_of_cells_like_it(tmp_path: Path) -> None:
    cells = begun(tmp_path)
    assert status(tmp_path).seconds_left is None
    average, worse, hybrid = cells[:3]
    note_time(Store(tmp_path), average, 10, 40.0)  # 4 s a round; its rows are not there, so it is to be run again
    note_time(Store(tmp_path), worse, 10, 10.0)  # 1 s a round
    assert [cell.shared(average) for cell in (worse, hybrid)] == [0, 6]
    # Two seeds of: ten rounds of FedAvg, ten of FedWorse, and the hybrid's last four at the mean pace of 2.5 s.
    assert status(tmp_path).seconds_left == pytest.approx(2 * (40 + 10 + 4 * 2.5) / (os.cpu_count() or 1))
    say_running(tmp_path, average, round=7, seconds=12.0, begun=4)
    found = status(tmp_path)
    assert [r["label"] for r in found.running] == ["FedAvg, seed 0"]
    assert found.seconds_left == pytest.approx((3 * 4 + 40) + 2 * 10 + 2 * 4 * 3)  # the hybrid: (4 + 1 + 4) / 3 a round


def test_cells_that_stop_early_are_expected_to_stop_where_others_did(tmp_path: Path) -> None:
    changes = {"stop_at": "accuracy >= 0.7", "strategies": ["FedAvg", "FedAvgSoftWorse(at=6)"], "seeds": 3}
    settings = {**VALUES["settings"], "partition": "iid", "lr": 0.5, "rounds": 30}
    one = study({**VALUES, **changes, "settings": settings, "seeds": 1})
    last = run_study(one, tmp_path).get(one.cells()[0].key).last
    assert last < 6
    (Store(tmp_path).log / "times.jsonl").unlink()
    more = one.with_changes(seeds=3)
    Store(tmp_path).write_plan("", plan(more, more.cells()))
    note_time(Store(tmp_path), one.cells()[0], last, 2.0 * last)
    # Seeds 1 and 2: FedAvg stops where it did before; the hybrid coincides with it until then and costs nothing.
    assert status(tmp_path).seconds_left == pytest.approx(2 * last * 2.0 / (os.cpu_count() or 1))


def test_cases_that_were_not_begun_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fedalpha.cli.study import status as show

    cells = begun(tmp_path, cases=[{"name": "small"}, {"name": "large", "epochs": 9}])
    say_running(tmp_path, cells[0], round=5, seconds=10.0)
    assert status(tmp_path).not_begun == 1
    show(tmp_path)
    # 5 + 10 rounds of FedAvg, 20 of FedWorse, 8 of the hybrid; as many and 5 of the other case: 91 rounds of 2 s.
    assert capsys.readouterr().out.splitlines()[-1] == (
        "time left: about 3 min, if 1 case not begun yet cost the same per round"
    )
    say_running(tmp_path, cells[-1], round=5, seconds=10.0)
    assert status(tmp_path).not_begun == 0


def test_a_study_with_a_strategy_of_a_plugin_is_read_without_it(tmp_path: Path) -> None:
    begun(tmp_path)
    file = tmp_path / "study.json"
    file.write_text(file.read_text().replace('"FedWorse"', '"Somebodys"'))
    (average, *_) = Store(tmp_path).plan()["cells"]
    say_running(tmp_path, Cell.from_entry(average), round=5, seconds=5.0)
    found = status(tmp_path)
    assert (found.total, found.done) == (6, 0)
    assert found.seconds_left is not None


def test_a_study_with_a_measure_of_a_plugin_asks_for_it(tmp_path: Path) -> None:
    begun(tmp_path)
    file = tmp_path / "study.json"
    stored = json.loads(file.read_text())
    stored["study"]["measures"] = ["late_accuracy"]
    stored["study"]["settings"]["plugin"] = "some/where/late.py"
    file.write_text(json.dumps(stored))
    with pytest.raises(ValueError, match=r"without its plugin: .*'late_accuracy'.*if you trust some/where/late\.py"):
        status(tmp_path)


def test_a_finished_study_takes_no_more_time(tmp_path: Path) -> None:
    run_study(study({**VALUES, "settings": {**VALUES["settings"], "rounds": 1}}), tmp_path)
    assert status(tmp_path).seconds_left == 0.0
