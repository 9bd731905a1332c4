"""Run folders: going on, refusing, failing disks."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fedalpha
from commands import fedalpha as command
from fedalpha.apply import Apply
from fedalpha.data import Pooled
from fedalpha.models import BuiltIn, mlp
from fedalpha.runs.callbacks import Callback, StopWhen
from fedalpha.runs.folder import Folder
from fedalpha.store import write_atomically
from histories import same_model, without_times

STATEFUL = "FedSoftWorse(T=0.2, optima=estimated)"


class Interrupt(Callback):
    """Ctrl-C after a round."""

    def __init__(self, round: int) -> None:
        self.round = round

    def on_round(self, row: dict[str, Any], state: object) -> None:
        if row["round"] == self.round:
            raise KeyboardInterrupt


class Fail(Interrupt):
    """An error after a round."""

    def on_round(self, row: dict[str, Any], state: object) -> None:
        if row["round"] == self.round:
            raise ZeroDivisionError("boom")


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("stop", [0, 2, 4])
def test_an_interrupted_run_goes_on_to_the_same_bytes(digits: Pooled, tmp_path: Path, every: int, stop: int) -> None:
    def go(out: Path | None = None, **more: Any) -> fedalpha.analysis.history.History:  # type: ignore[name-defined]
        folder = None if out is None else Folder(out, every=every)
        return fedalpha.run(digits, "softmax", STATEFUL, rounds=5, engine="embedded(workers=1)", out=folder, **more)

    whole = go()
    with pytest.raises(ZeroDivisionError):
        go(out=tmp_path, callbacks=[Fail(stop)])
    with pytest.raises(fedalpha.Interrupted) as stopped:
        go(out=tmp_path, callbacks=[Interrupt(min(stop + 1, 5))])
    assert stopped.value.history.interrupted
    again = go(out=tmp_path)
    assert not again.interrupted
    assert without_times(again) == without_times(whole)
    assert same_model(again, whole)
    assert [json.loads(line)["round"] for line in (tmp_path / "history.jsonl").read_text().splitlines()] == list(
        range(6)
    )


def test_a_finished_folder_is_read_not_run(digits: Pooled, tmp_path: Path) -> None:
    first = fedalpha.run(digits, "softmax", rounds=2, engine="embedded(workers=1)", out=tmp_path)
    second = fedalpha.run(digits, "softmax", rounds=2, engine="embedded(workers=1)", out=tmp_path, callbacks=[Fail(0)])
    assert second.rows == first.rows
    assert same_model(first, second)


def test_a_run_that_was_stopped_on_purpose_is_finished(digits: Pooled, tmp_path: Path) -> None:
    stop = StopWhen(lambda row: row["round"] == 1)
    fedalpha.run(digits, "softmax", rounds=4, engine="embedded(workers=1)", out=tmp_path, callbacks=[stop])
    again = fedalpha.run(digits, "softmax", rounds=4, engine="embedded(workers=1)", out=tmp_path)
    assert [row["round"] for row in again.rows] == [0, 1]


def test_a_damaged_model_of_a_finished_run_is_written_again(digits: Pooled, tmp_path: Path) -> None:
    fedalpha.run(digits, "softmax", rounds=2, engine="embedded(workers=1)", out=tmp_path)
    model = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(model[:-1])
    fedalpha.run(digits, "softmax", rounds=2, engine="embedded(workers=1)", out=tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == model


def test_another_configuration_is_refused_and_the_difference_shown(digits: Pooled, tmp_path: Path) -> None:
    fedalpha.run(digits, "softmax", rounds=1, engine="embedded(workers=1)", out=tmp_path)
    with pytest.raises(ValueError, match=r"seed is 0 there and 1 here"):
        fedalpha.run(digits, "softmax", rounds=1, seed=1, engine="embedded(workers=1)", out=tmp_path)
    with pytest.raises(ValueError, match=r"initial parameters of the model differ .* pass a function that returns it"):
        fedalpha.run(digits, "mlp", rounds=1, engine="embedded(workers=1)", out=tmp_path)


def test_rows_without_a_checkpoint_are_kept(digits: Pooled, tmp_path: Path) -> None:
    def go(**more: Any) -> fedalpha.analysis.history.History:  # type: ignore[name-defined]
        return fedalpha.run(digits, "softmax", rounds=1, engine="embedded(workers=1)", out=tmp_path, **more)

    whole = go()
    shutil.rmtree(tmp_path / "checkpoint")
    written = {path: path.read_bytes() for path in tmp_path.iterdir() if path.name != "lock"}
    with pytest.raises(ValueError, match=r"seed is 0 there and 1 here"):
        go(seed=1)
    assert {path: path.read_bytes() for path in written} == written
    assert same_model(go(), whole)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_changed_run_that_cannot_start_leaves_a_folder_to_go_on_in(digits: Pooled, tmp_path: Path, seed: int) -> None:
    def go(**more: Any) -> fedalpha.analysis.history.History:  # type: ignore[name-defined]
        return fedalpha.run(digits, "softmax", rounds=2, **{"engine": "embedded(workers=1)", **more})

    with suppress(KeyboardInterrupt):
        go(out=tmp_path, callbacks=[Interrupt(1)])
    with pytest.raises(ValueError, match="device"):
        go(out=tmp_path, seed=1, engine="embedded(workers=1, device=nowhere)")
    with suppress(KeyboardInterrupt):
        go(out=tmp_path, seed=seed, callbacks=[Interrupt(2)])
    assert without_times(go(out=tmp_path, seed=seed)) == without_times(go(seed=seed))
    assert json.loads((tmp_path / "config.json").read_text())["seed"] == seed


@pytest.mark.parametrize("step", range(1, 7))
@pytest.mark.parametrize("rounds", [0, 2])
def test_a_changed_run_that_dies_while_it_replaces_the_old_one_can_be_begun_again(
    digits: Pooled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int, step: int
) -> None:
    """Files go (mark of the end, manifest, state, rows), configuration and history are written: it dies before one."""
    steps: list[Any] = []

    def dying(real: Any) -> Any:
        def stepped(*arguments: Any, **more: Any) -> Any:
            steps.append(arguments)
            if len(steps) == step:
                raise ZeroDivisionError("boom")
            return real(*arguments, **more)

        return stepped

    with suppress(KeyboardInterrupt):
        fedalpha.run(
            digits, "softmax", rounds=rounds, engine="embedded(workers=1)", out=tmp_path, callbacks=[Interrupt(1)]
        )
    with monkeypatch.context() as patch:
        patch.setattr("fedalpha.runs.folder.write_atomically", dying(write_atomically))
        patch.setattr(os, "unlink", dying(os.unlink))
        with pytest.raises(ZeroDivisionError):
            fedalpha.run(digits, "softmax", rounds=1, seed=1, engine="embedded(workers=1)", out=tmp_path)
    again = fedalpha.run(digits, "softmax", rounds=1, seed=1, engine="embedded(workers=1)", out=tmp_path)
    assert without_times(again) == without_times(
        fedalpha.run(digits, "softmax", rounds=1, seed=1, engine="embedded(workers=1)")
    )


def test_other_versions_are_warned_of(digits: Pooled, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fedalpha.run(digits, "softmax", rounds=1, engine="embedded(workers=1)", out=tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["versions"]["torch"] = "1.0"
    (tmp_path / "config.json").write_text(json.dumps(config))
    fedalpha.run(digits, "softmax", rounds=1, engine="embedded(workers=1)", out=tmp_path)
    assert "torch is 1.0 there" in caplog.text


def test_a_damaged_generation_is_reported_and_the_one_before_used(
    digits: Pooled, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = fedalpha.run(digits, "softmax", STATEFUL, rounds=4, engine="embedded(workers=1)")
    with suppress(KeyboardInterrupt):
        fedalpha.run(
            digits, "softmax", STATEFUL, rounds=4, engine="embedded(workers=1)", out=tmp_path, callbacks=[Interrupt(3)]
        )
    newest = max((tmp_path / "checkpoint").glob("*.safetensors"))
    newest.write_bytes(newest.read_bytes()[:-100])
    again = fedalpha.run(digits, "softmax", STATEFUL, rounds=4, engine="embedded(workers=1)", out=tmp_path)
    assert "is damaged" in caplog.text
    assert same_model(again, whole)


def test_a_users_own_module_and_buffers_go_on(digits: Pooled, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 10))
    whole = fedalpha.run(digits, module, rounds=3, engine="embedded(workers=1)")
    with suppress(KeyboardInterrupt):
        fedalpha.run(digits, module, rounds=3, engine="embedded(workers=1)", out=tmp_path, callbacks=[Interrupt(1)])
    again = fedalpha.run(digits, module, rounds=3, engine="embedded(workers=1)", out=tmp_path)
    assert same_model(again, whole)
    assert again.model["2.num_batches_tracked"].dtype == torch.int64


def test_a_module_in_another_layout_is_saved(digits: Pooled, tmp_path: Path) -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3), nn.Flatten(), nn.Linear(32, 10))
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    runs = [
        fedalpha.run(digits, module, rounds=1, engine="embedded(workers=1)", combine="median", out=out)
        for out in (None, tmp_path / "run")
    ]
    assert same_model(*runs)


class widen(Apply):  # noqa: N801
    """Adds a hidden unit in every round, and remembers how many."""

    def init(self) -> dict[str, Any]:
        return {"added": 0}

    def apply(self, state: Any, broadcast: Any, aggregate: Any) -> Any:
        p = aggregate.parameters
        unit = {"layer1.weight": (p["layer1.weight"], 0), "layer1.bias": (p["layer1.bias"], 0)}
        unit["output.weight"] = (p["output.weight"], 1)
        grown = {k: torch.cat([v, v.narrow(d, 0, 1)], dim=d) for k, (v, d) in unit.items()}
        assert isinstance(aggregate.architecture, BuiltIn)
        architecture = aggregate.architecture.with_model(mlp(hidden=len(grown["layer1.bias"])))
        parameters = {name: grown.get(name, value) for name, value in p.items()}
        changed = dataclasses.replace(aggregate, architecture=architecture, parameters=parameters)
        return changed, {"added": state["added"] + 1}


@pytest.mark.parametrize("workers", [1, 2])
def test_an_architecture_that_changes_between_rounds_is_restored(digits: Pooled, tmp_path: Path, workers: int) -> None:
    whole = fedalpha.run(digits, "mlp(hidden=5)", rounds=4, engine="embedded(workers=1)", apply=widen())
    with suppress(KeyboardInterrupt):
        fedalpha.run(
            digits,
            "mlp(hidden=5)",
            rounds=4,
            engine=f"embedded(workers={workers})",
            apply=widen(),
            out=tmp_path,
            callbacks=[Interrupt(2)],
        )
    again = fedalpha.run(
        digits, "mlp(hidden=5)", rounds=4, engine=f"embedded(workers={workers})", apply=widen(), out=tmp_path
    )
    assert again.model["layer1.bias"].shape == (9,)
    assert same_model(again, whole)


def test_a_full_disk_stops_cleanly_and_the_old_generation_loads(digits: Pooled, tmp_path: Path) -> None:
    """The operating system refuses to let a file grow beyond a limit: writes fail half-way, as on a full disk."""
    code = (
        "import resource, sys, fedalpha.store.files\n"
        "from fedalpha.runs.folder import Folder\n"
        "save = Folder._save\n"
        "def limited(self):\n"
        "    if self._state.round == 3: resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))\n"
        "    save(self)\n"
        "Folder._save = limited\n"
        "from fedalpha.cli import main; main()"
    )
    settings = ("run", "--model", "softmax", "--clients", "4", "--rounds", "5", "--workers", "1")
    full = subprocess.run(
        [sys.executable, "-c", code, *settings, "--out", str(tmp_path / "a")],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert full.returncode == 1
    assert "cannot save round 3" in full.stderr
    assert os.strerror(errno.EFBIG) in full.stderr
    assert "the state after round 2 is safe there" in full.stderr
    assert "Traceback" not in full.stderr
    assert not list((tmp_path / "a" / "checkpoint").glob("*.tmp"))
    again = command(*settings, "--out", str(tmp_path / "a"))
    assert "resumed after round 2/5" in again.stdout
    assert command(*settings, "--out", str(tmp_path / "b")).returncode == 0
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()
    done = command("resume", str(tmp_path / "a"))
    assert done.returncode == 0
    assert "finished" in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_row_that_cannot_be_written_says_so_and_frees_the_folder(
    digits: Pooled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes) -> None:
        with open("/dev/full", "ab", buffering=0) as device:
            device.write(content)

    with monkeypatch.context() as patch:
        patch.setattr("fedalpha.runs.folder.append", full)
        with pytest.raises(OSError, match=r"cannot save round 0 .* free some space"):
            fedalpha.run(digits, "softmax", rounds=1, engine="embedded(workers=1)", out=tmp_path)
    assert len(fedalpha.run(digits, "softmax", rounds=1, engine="embedded(workers=1)", out=tmp_path).rows) == 2


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
def test_a_read_only_folder_is_an_error_with_a_remedy(digits: Pooled, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0o500)
    if os.access(closed, os.W_OK):  # the superuser may write anywhere: ask what it cannot write to
        closed = Path("/proc/1")
    with pytest.raises(OSError, match=r"cannot write to .* Make the folder writable"):
        fedalpha.run(digits, "softmax", rounds=1, engine="embedded(workers=1)", out=closed / "run")


def test_two_processes_cannot_share_a_folder(digits: Pooled, tmp_path: Path) -> None:
    with Folder(tmp_path, {}):
        refused = command("run", "--rounds", "1", "--out", str(tmp_path))
    assert refused.returncode == 1
    assert f"in use by another process (pid {os.getpid()})" in refused.stderr


def test_resume_without_a_run_says_what_to_do(tmp_path: Path, digits: Pooled) -> None:
    nothing = command("resume", str(tmp_path))
    assert nothing.returncode == 2
    assert "no config.json" in nothing.stderr
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    fedalpha.run(digits, module, rounds=1, engine="embedded(workers=1)", out=tmp_path)
    other = command("resume", str(tmp_path))
    assert other.returncode == 2
    assert "started in Python" in other.stderr


@pytest.mark.parametrize("evaluate", [1, 3])
@pytest.mark.parametrize("every", [1, 4])
def test_a_finished_run_is_lengthened_to_the_bytes_of_a_long_one(
    digits: Pooled, tmp_path: Path, evaluate: int, every: int
) -> None:
    scored = digits.with_task(fedalpha.Task(scores="f1"))

    def go(name: str, rounds: int, **more: Any) -> fedalpha.analysis.history.History:  # type: ignore[name-defined]
        folder = Folder(tmp_path / name, every=every)
        watch = fedalpha.Evaluate(every=evaluate, keep="best")
        return fedalpha.run(
            scored, "softmax", STATEFUL, rounds=rounds, evaluate=watch, engine="embedded(workers=1)", out=folder, **more
        )

    whole = go("whole", 5)
    go("grown", 2)
    with pytest.raises(ZeroDivisionError):
        go("grown", 5, callbacks=[Fail(3)])
    grown = go("grown", 5)
    assert without_times(grown) == without_times(whole)
    for name in ("model.safetensors", "best.safetensors", "config.json"):
        assert (tmp_path / "grown" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    rows = [json.loads(line) for line in (tmp_path / "grown" / "history.jsonl").read_text().splitlines()]
    assert rows == grown.rows
    assert go("grown", 5, callbacks=[Fail(0)]).rows == rows  # finished
    with pytest.raises(ValueError, match=r"rounds is 5 there and 4 here.*the number of rounds may be larger"):
        go("grown", 4)


def test_a_folder_of_another_kind_is_not_overwritten(digits: Pooled, tmp_path: Path) -> None:
    (tmp_path / "a-seed0").mkdir()
    (tmp_path / "a-seed0" / "config.json").write_text("{}")
    (tmp_path / "curves.png").write_bytes(b"of the comparison")
    with pytest.raises(ValueError, match="holds a comparison; choose another folder"):
        fedalpha.run(digits, "softmax", rounds=1, engine="embedded(workers=1)", out=tmp_path)
    assert (tmp_path / "curves.png").read_bytes() == b"of the comparison"


@pytest.mark.parametrize(
    ("name", "said"),
    [("config.json", "is a file of another program; choose"), ("model.safetensors", "of something else; choose")],
)
def test_a_users_own_files_are_not_overwritten(digits: Pooled, tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / name).write_text('{"mine": 1}')
    with pytest.raises(ValueError, match=said):
        fedalpha.run(digits, "softmax", rounds=1, engine="embedded(workers=1)", out=tmp_path)
    assert (tmp_path / name).read_text() == '{"mine": 1}'


def test_ctrl_c_ends_a_loop_of_runs(digits: Pooled) -> None:
    begun = []

    def loop() -> None:
        for seed in range(3):
            begun.append(seed)
            fedalpha.run(digits, "softmax", rounds=3, seed=seed, engine="embedded(workers=1)", callbacks=[Interrupt(1)])

    with pytest.raises(fedalpha.Interrupted, match="interrupted after round 1") as stopped:
        loop()
    assert begun == [0]
    assert isinstance(stopped.value, KeyboardInterrupt)
    assert [row["round"] for row in stopped.value.history.rows] == [0, 1]
