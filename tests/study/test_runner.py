"""Studies in real folders: killed, continued, extended, shared."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import fedalpha
from fedalpha.report.processors import processor
from fedalpha.round import ServerState
from fedalpha.runs.machine import versions
from fedalpha.study import Cell, CellError, Store, crew, halfway, run_study, status, study
from fedalpha.study.crew import columns
from fedalpha.study.runner import alone, to_toml
from packs import unpack

SMALL: dict[str, Any] = {
    "name": "small",
    "strategies": ["FedAvg", "FedSoftBetter(T=0.2)", "FedSoftBetterAvg(T=0.2, at=3)"],
    "seeds": 2,
    "settings": {
        "dataset": "digits",
        "partition": "dirichlet(a=1)",
        "clients": 4,
        "model": "softmax",
        "rounds": 5,
        "lr": 0.1,
        "batch": 32,
    },
}


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but the log."""
    files = (p for p in folder.rglob("*") if p.is_file() and "log" not in p.relative_to(folder).parts)
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studies") / "small"
    run_study(study(SMALL), folder, jobs=2)
    return folder


def test_a_cell_holds_the_rows_of_a_run(finished: Path) -> None:
    cell = study(SMALL).cells()[1]
    history = cell.settings.run(workers=2)
    stored = Store(finished).get(cell.key)
    expected = columns(history)
    assert stored.columns["accuracy"] == expected["accuracy"]
    assert stored.columns["round"] == [0, 1, 2, 3, 4, 5]
    assert stored.columns["alpha"][2] == pytest.approx(expected["alpha"][2], rel=1e-6)
    assert stored.columns["alpha"][0] is None
    assert stored.about["hash"] == cell.key
    assert stored.about["versions"]["fedalpha"] == fedalpha.__version__
    assert not stored.stopped


def test_other_programs_read_the_folder(finished: Path) -> None:
    import pandas

    cells = pandas.read_parquet(finished / "cells.parquet")
    table = pandas.read_csv(finished / "rounds.csv")
    assert len(cells) == len(table) == 2 * 3 * 6
    one = cells[(cells.strategy == "FedAvg") & (cells.seed == 1)].accuracy.tolist()
    assert one == table[(table.strategy == "FedAvg") & (table.seed == 1)].accuracy.tolist()


def test_a_hybrid_that_went_on_from_its_first_rule_is_the_hybrid(finished: Path) -> None:
    """Its first rounds were computed once, with the pure rule; the rows are those of a run of its own."""
    pure, hybrid = study(SMALL).cells()[1:3]
    stored = Store(finished).get(hybrid.key)
    assert stored.about["shares"] == {"cell": pure.key, "rounds": 3}
    alone = columns(hybrid.settings.run(workers=1))
    for name in ("accuracy", "loss", "bytes_up", "steps", "cohort"):
        assert stored.columns[name] == alone[name]
    assert Store(finished).get(pure.key).columns["accuracy"][4] != stored.columns["accuracy"][4]
    times = [json.loads(line) for line in (finished / "log" / "times.jsonl").read_text().splitlines()]
    assert {t["rounds"] for t in times if t["cell"] == hybrid.key} == {2}


@pytest.mark.parametrize(
    ("first", "second", "third"),
    [
        ("FedSoftBetterAvg(at=2)", "FedSoftBetterAvgSoftWorse(at=[2, 4])", "FedSoftBetter"),
        (
            "switch(FedWorse, FedSoftWorse(optima=estimated), FedAvg, at=[0, 3])",
            "FedSoftWorse(optima=estimated)",
            "FedAvg",
        ),
    ],
)
def test_states_pass_between_hybrids_and_pure_rules(first: str, second: str, third: str, tmp_path: Path) -> None:
    values = {**SMALL, "seeds": 1, "strategies": [first, second, third]}
    store = run_study(study(values), tmp_path)
    assert any("shares" in store.get(cell.key).about for cell in study(values).cells())
    for cell in study(values).cells():
        assert store.get(cell.key).columns["accuracy"] == columns(cell.settings.run(workers=1))["accuracy"]


def test_a_cell_that_was_killed_half_way_goes_on(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every round is saved here, and each cell's process (forked, so it sees the patch) is killed after round 2."""
    save = halfway.Save._save

    def save_and_die(self: halfway.Save, folder: Path, state: ServerState) -> None:
        save(self, folder, state)
        if state.round == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    folder = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        patch.setattr(halfway, "SECONDS", 0.0)
        patch.setattr(halfway.Save, "_save", save_and_die)
        with pytest.raises(CellError, match="every cell failed"):
            run_study(study(SMALL), folder)
    assert not list(folder.glob("cells*"))
    run_study(study(SMALL), folder)
    assert contents(folder) == contents(finished)
    times = [json.loads(line) for line in (folder / "log" / "times.jsonl").read_text().splitlines()]
    assert [t["rounds"] for t in times] == [3] * 6
    assert not (folder / "log" / "half").exists()


def test_a_cell_that_was_resumed_on_another_machine_names_both(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = halfway.Save._save

    def save_and_die(self: halfway.Save, folder: Path, state: ServerState) -> None:
        save(self, folder, state)
        os.kill(os.getpid(), signal.SIGKILL)

    elsewhere = {**versions(), "processor": "Another"}
    with monkeypatch.context() as patch:
        patch.setattr(halfway, "SECONDS", 0.0)
        patch.setattr(halfway.Save, "_save", save_and_die)
        patch.setattr(halfway, "versions", lambda: elsewhere)
        with pytest.raises(CellError):
            run_study(study(SMALL), tmp_path)
    store = run_study(study(SMALL), tmp_path)
    for cell in study(SMALL).cells():
        found = store.get(cell.key)
        assert found.about["machines"] == [elsewhere, versions()]
        assert processor(found).startswith("Another; ")
        assert f", then {versions()['processor']}; " in processor(found)
    assert all("machines" not in Store(finished).get(cell.key).about for cell in study(SMALL).cells())


def test_a_killed_study_continues_to_the_same_files(finished: Path, tmp_path: Path) -> None:
    file, folder = tmp_path / "small.toml", tmp_path / "killed"
    file.write_text(to_toml(study(SMALL)))
    command = [sys.executable, "-c", "from fedalpha.cli import main; main()", "study", str(file), "--out", str(folder)]
    rng = random.Random(0)
    kills = 0
    for wanted in (0, 1, 3):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 600
        while process.poll() is None and time.monotonic() < deadline:
            if len(list(folder.glob("cells/*.parquet"))) >= wanted and (folder / "study.json").exists():
                time.sleep(rng.uniform(0, 0.4))
                break
            time.sleep(0.01)
        kills += process.poll() is None
        process.kill()
        process.wait()
        if kills == 2:
            shutil.rmtree(folder / "log")  # what a fresh clone does not have
    assert kills > 0
    (folder / "cells").mkdir(exist_ok=True)
    (folder / "cells" / ".half.parquet.1.tmp").write_bytes(b"half a cell")
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert contents(folder) == {**contents(finished), "study.toml": file.read_bytes()}


def test_adding_seeds_and_strategies_only_runs_what_is_missing(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "clone"
    shutil.copytree(finished, folder, ignore=shutil.ignore_patterns("log"))
    before = {cell.key: Store(folder).get(cell.key) for cell in study(SMALL).cells()}
    more = {**SMALL, "seeds": 3, "strategies": ["FedWorse", *SMALL["strategies"]]}
    store = run_study(study(more), folder)
    assert all(store.has(cell) for cell in study(more).cells())
    for key, result in before.items():
        assert (store.get(key).columns, store.get(key).about) == (result.columns, result.about)
    assert len((folder / "log" / "times.jsonl").read_text().splitlines()) == 2 * 1 + 4
    assert status(folder).done == status(folder).total == 12


def test_cells_that_coincide_are_computed_once_and_say_so(tmp_path: Path) -> None:
    late = {**SMALL, "seeds": 1, "strategies": ["FedSoftBetter(T=0.2)", "FedSoftBetterAvg(T=0.2, at=5)", "FedAvg"]}
    store = run_study(study(late), tmp_path)
    pure, hybrid, average = (store.get(cell.key) for cell in study(late).cells())
    assert hybrid.columns == pure.columns
    assert hybrid.about["coincides_with"] == pure.key
    assert "coincides_with" not in pure.about
    assert "coincides_with" not in average.about
    assert len((tmp_path / "log" / "times.jsonl").read_text().splitlines()) == 2
    assert status(tmp_path).coinciding == 1


@pytest.mark.parametrize("jobs", [1, 3])
def test_cells_without_rounds_coincide_whatever_the_number_of_jobs(jobs: int, tmp_path: Path) -> None:
    none = {**SMALL, "seeds": 1, "settings": {**SMALL["settings"], "rounds": 0}}
    store = run_study(study(none), tmp_path, jobs=jobs)
    first, *others = [store.get(cell.key) for cell in study(none).cells()]
    assert [other.about["coincides_with"] for other in others] == [first.key] * 2


def test_a_cell_stops_when_its_question_is_answered(tmp_path: Path) -> None:
    """FedAvg answers before round 3, so a hybrid that changes there has its rows; one that changes at 1 has not."""
    settings = {**SMALL["settings"], "rounds": 8, "partition": "iid", "lr": 0.5}
    names = ["FedAvg", "FedAvgSoftWorse(at=3)", "FedAvgSoftBetter(at=1)"]
    values = {**SMALL, "seeds": 1, "strategies": names, "settings": settings, "stop_at": "accuracy >= 0.7"}
    store = run_study(study(values), tmp_path)
    average, late, early = (store.get(cell.key) for cell in study(values).cells())
    assert 1 < average.last <= 3
    assert average.stopped
    assert average.columns["accuracy"][-1] >= 0.7 > max(average.columns["accuracy"][:-1])
    assert late.about["coincides_with"] == average.key
    assert late.stopped
    assert "coincides_with" not in early.about


def test_a_failing_cell_is_told_and_the_others_are_done(tmp_path: Path) -> None:
    cases = [{"name": "good"}, {"name": "bad", "clients": 100_000}]
    values = {**SMALL, "seeds": 1, "strategies": ["FedAvg"], "cases": cases}
    with pytest.raises(CellError, match="1 of 2 cells failed") as error:
        run_study(study(values), tmp_path)
    assert "The first, FedAvg, seed 0, bad:" in str(error.value)
    assert "Traceback" not in str(error.value)
    assert "Traceback" in next((tmp_path / "log").glob("*.error")).read_text()
    assert (status(tmp_path).done, status(tmp_path).failed) == (1, ["FedAvg, seed 0, bad"])


def test_a_cell_that_failed_holds_up_those_that_may_have_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the next run would store the rows of the twin under other names than an undisturbed one."""
    late = {**SMALL, "seeds": 1, "strategies": ["FedSoftBetter(T=0.2)", "FedSoftBetterAvg(T=0.2, at=5)", "FedAvg"]}
    run_study(study(late), tmp_path / "whole")
    folder = tmp_path / "disturbed"
    measure = crew.measure

    def killed(cell: Cell, *arguments: Any) -> Any:
        if cell.strategy.startswith("FedSoftBetter("):
            os.kill(os.getpid(), signal.SIGKILL)
        return measure(cell, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(crew, "measure", killed)
        with pytest.raises(CellError, match="2 of 3 cells failed") as error:
            run_study(study(late), folder)
    assert "The first, FedSoftBetter(T=0.2), seed 0:" in str(error.value)
    assert [Store(folder).has(cell) for cell in study(late).cells()] == [False, False, True]
    run_study(study(late), folder)
    assert contents(folder) == contents(tmp_path / "whole")


def test_hybrids_of_one_rule_start_together_where_it_goes_beyond_them(tmp_path: Path) -> None:
    names = ["FedAvg", "FedAvgSoftWorse(at=2)", "FedAvgSoftBetter(at=2)"]
    found = study({**SMALL, "seeds": 1, "strategies": names, "stop_at": "accuracy >= 0.9"})
    average, *hybrids = found.cells()
    under_way = crew.Crew(Store(tmp_path), found.cells(), "all", None)
    assert [under_way._awaited(cell) for cell in hybrids] == [True, True]
    beyond = halfway.branch(Store(tmp_path), average, 2)
    beyond.mkdir(parents=True)
    (beyond / "000000.json").touch()
    assert [under_way._awaited(cell) for cell in hybrids] == [False, False]


def test_two_runners_do_not_share_a_folder(tmp_path: Path) -> None:
    code = f"""
import sys, time
from fedalpha.study import Store
from fedalpha.study.runner import alone
with alone(Store({str(tmp_path)!r})):
    print("locked", flush=True); time.sleep(60)
"""
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(RuntimeError, match="another process"):
            run_study(study(SMALL), tmp_path)
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        assert holder.stdout is not None
        holder.stdout.close()
    with alone(Store(tmp_path)):
        pass


def test_another_study_is_not_mixed_in(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    shutil.copytree(finished, folder)
    with pytest.raises(ValueError, match="holds the study 'small'"):
        run_study(study({**SMALL, "name": "other"}), folder)


def test_the_folder_of_a_run_or_comparison_is_not_mixed_in(tmp_path: Path) -> None:
    for name, kind in (("config.json", "run"), ("comparison.json", "comparison")):
        folder = tmp_path / kind
        folder.mkdir()
        (folder / name).write_text("{}")
        with pytest.raises(ValueError, match=f"holds a {kind}; choose another folder for a study"):
            run_study(study(SMALL), folder)
        assert [file.name for file in folder.iterdir()] == [name]


def test_a_renamed_case_is_the_same_cell(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "renamed"
    shutil.copytree(finished, folder, ignore=shutil.ignore_patterns("log"))
    run_study(
        study({**SMALL, "cases": [{"name": "as before"}, {"name": "the same again", "batch": 32, "lr": 0.1}]}), folder
    )
    assert not (folder / "log" / "times.jsonl").exists()
    lines = (folder / "rounds.csv").read_text().splitlines()
    assert sum(line.startswith("as before,") for line in lines) == sum(
        line.startswith("the same again,") for line in lines
    )


def test_a_folder_reads_back_by_its_own_entries(finished: Path, tmp_path: Path) -> None:
    """If a default changes, the study's text means other cells; the folder still shows the ones that were run."""
    from fedalpha.study import load_study

    folder = tmp_path / "older"
    shutil.copytree(finished, folder)
    plan = json.loads((folder / "study.json").read_text())
    plan["study"]["settings"]["batch"] = 7  # what the text would come to mean
    (folder / "study.json").write_text(json.dumps(plan))
    found, cells, store = load_study(folder)
    assert not any(store.has(cell) for cell in found.cells())
    assert all(store.has(cell) and "batch=32" in cell.settings.update for cell in cells)
    assert status(folder).done == 6


def test_status_on_the_command_line(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fedalpha.cli.study import status as show

    folder = tmp_path / "half"
    shutil.copytree(finished, folder)
    unpack(folder)[0].unlink()
    show(folder)
    assert capsys.readouterr().out == f"5 of 6 cells done\nnot running now; `fedalpha study {folder}` resumes it\n"


def test_what_is_not_a_study_or_cannot_be_written_is_named(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(finished, folder)
    (folder / "study.json").write_text("{\n")
    for use in (status, lambda folder: run_study(study(SMALL), folder)):
        with pytest.raises(ValueError, match=r"study\.json: .*delete it and run"):
            use(folder)
    (folder / "study.json").unlink()
    run_study(study(SMALL), folder)
    assert contents(folder) == contents(finished)
    (tmp_path / "file").write_text("")
    with pytest.raises(RuntimeError, match=r"cannot write to .*file"):
        run_study(study(SMALL), tmp_path / "file")


def test_a_cell_under_the_name_of_another_is_refused(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "swapped"
    shutil.copytree(finished, folder)
    one, other, *_ = unpack(folder)
    shutil.copy(one, other)
    with pytest.raises(ValueError, match=f"{other.name} holds another cell"):
        status(folder)


def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_text(to_toml(study({**SMALL, "settings": {**SMALL["settings"], "rounds": 100_000}})))
    process = subprocess.Popen(
        [sys.executable, "-m", "fedalpha", "study", "long.toml"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a suite in the background ignores it
    )
    try:
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline and not list(tmp_path.glob("runs/small/log/*.running")):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        shown, _ = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "the same command resumes" in shown


@pytest.mark.parametrize("packed", [True, False])
def test_a_damaged_cell_is_named(finished: Path, tmp_path: Path, packed: bool) -> None:
    folder = tmp_path / "damaged"
    shutil.copytree(finished, folder)
    path = folder / "cells.parquet" if packed else unpack(folder)[0]
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=f"{path.name}.*delete it"):
        status(folder)


def test_cells_are_packed_into_one_file_whatever_happened_before(finished: Path, tmp_path: Path) -> None:
    """A crash may leave cells in both places, or a half-written pack; the bytes come out the same."""
    folder = tmp_path / "crashed"
    shutil.copytree(finished, folder)
    assert not (folder / "cells").exists()
    single = unpack(folder)
    assert len(single) == 6
    assert status(folder).done == 6
    run_study(study(SMALL), folder)
    assert contents(folder) == contents(finished)
    unpack(folder)[0].unlink()
    shutil.copy(finished / "cells.parquet", folder)
    (folder / ".cells.parquet.1.tmp").write_bytes(b"half a pack")
    run_study(study(SMALL), folder)
    assert contents(folder) == contents(finished)


def test_a_packed_study_is_read_while_new_cells_appear(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "growing"
    shutil.copytree(finished, folder)
    store, (cell, *_) = Store(folder), study(SMALL).cells()
    (later,) = study({**SMALL, "strategies": ["FedWorse"], "seeds": 1}).cells()
    assert (store.has(cell), store.has(later), store.strangers([cell])) == (True, False, 5)
    found = store.get(cell.key)
    store.put(later, found.columns, {"ended": "rounds", "versions": {}})
    assert (store.has(cell), store.has(later), store.strangers([cell])) == (True, True, 6)
    before = store.get(later.key)
    store.pack(study(SMALL).cells())
    assert store.has(later)
    assert (store.get(later.key).columns, store.get(later.key).about) == (before.columns, before.about)
    assert not store.cells.exists()


def test_per_client_columns_are_kept_where_the_study_asks_for_them(tmp_path: Path) -> None:
    def kept(values: dict[str, Any]) -> list[set[str]]:
        store = run_study(study(values), tmp_path / values["per_client"])
        names = {"cohort", "alpha", "loss_before", "loss_train", "loss_after"}
        return [names & set(store.get(cell.key).columns) for cell in study(values).cells()]

    small = {**SMALL, "strategies": ["FedSoftBetter(T=0.2)"]}
    everything = {"cohort", "alpha", "loss_before", "loss_train"}
    assert kept({**small, "per_client": "drawn"}) == [{"cohort", "alpha"}, set()]
    assert kept({**small, "per_client": "all"}) == [everything, everything]
    assert kept({**small, "per_client": "none"}) == [set(), set()]
    assert study(small).per_client == "drawn"


def test_another_format_is_refused_by_name(finished: Path, tmp_path: Path) -> None:
    import pyarrow.parquet

    folder = tmp_path / "older"
    shutil.copytree(finished, folder)
    plan = json.loads((folder / "study.json").read_text())
    assert plan.pop("format") == 2
    (folder / "study.json").write_text(json.dumps(plan))
    with pytest.raises(ValueError, match=r"older has format 1, .* reads and writes format 2"):
        status(folder)
    shutil.copy(finished / "study.json", folder)
    table = pyarrow.parquet.read_table(finished / "cells.parquet")
    newer = table.replace_schema_metadata({"fedalpha": '{"format": 3}'})
    pyarrow.parquet.write_table(newer, folder / "cells.parquet")
    with pytest.raises(ValueError, match=r"cells\.parquet has format 3"):
        status(folder)


def test_a_missing_package_is_named_before_anything_is_run(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(to_toml(study(SMALL)))
    code = "import sys; sys.modules['pyarrow'] = None; from fedalpha.cli import main; main()"
    command = [sys.executable, "-c", code, "study", str(tmp_path / "small.toml"), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert 'install it with: pip install "fedalpha[studies]"' in done.stderr
    assert "cells" not in done.stdout
    assert not (tmp_path / "out").exists()


def test_a_case_that_diverged_is_marked(tmp_path: Path) -> None:
    from fedalpha.report import gather
    from fedalpha.report.tables import results_table

    settings = {**SMALL["settings"], "rounds": 2}
    cases = [{"name": "good", "lr": 0.1}, {"name": "bad", "lr": 1e8}, {"name": "hopeless", "lr": 1e38}]
    values = {**SMALL, "seeds": 1, "strategies": ["FedAvg"], "settings": settings, "cases": cases}
    run_study(study(values), tmp_path, jobs=1)
    found = gather(tmp_path)
    notes = {case: {line[-1] for line in results_table(found, case)[1]} for case in found.cases}
    assert notes == {
        "good": {""},
        "bad": {"diverged in 1 of 1 runs"},
        "hopeless": {"last round without a new model in 1 of 1 runs"},
    }


def test_the_error_of_a_failed_cell_is_told_in_all_its_lines(tmp_path: Path) -> None:
    plugin = tmp_path / "rules.py"
    plugin.write_text(
        "from fedalpha.strategies import STRATEGIES, Strategy\n"
        "@STRATEGIES.register()\n"
        "class Talkative(Strategy):\n"
        "    def weights(self, state, cohort):\n"
        "        raise RuntimeError('what went wrong\\n  and what to do')\n"
    )
    settings = {**SMALL["settings"], "plugin": str(plugin)}
    with pytest.raises(CellError) as error:
        run_study(study({**SMALL, "settings": settings, "seeds": 1, "strategies": ["Talkative"]}), tmp_path / "out")
    assert "what went wrong\n  and what to do" in str(error.value)
    assert "Traceback" not in str(error.value)
