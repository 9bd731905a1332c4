"""Workers: results, errors, deaths, and no orphans."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

import fedalpha
from fedalpha.analysis.history import Row
from fedalpha.data import Pooled
from fedalpha.engine.backends.pool import Pool, WorkerError
from fedalpha.engine.embedded import embedded
from fedalpha.models import MODELS, Template
from fedalpha.round import ServerState, Train
from fedalpha.runs.callbacks import Callback
from fedalpha.update import Broadcast, sgd
from histories import same_model, without_times


def test_results_come_back_with_their_index() -> None:
    pool = Pool(2, lambda worker, task: task * task)
    try:
        assert sorted((i, r) for i, _, r in pool.map(range(20))) == [(i, i * i) for i in range(20)]
    finally:
        pool.close()


class Garbage:
    """Refers to itself, so that the collector alone frees it; as Ray's clients, which then wait for their threads."""

    freed: ClassVar[list[int]] = []

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        self.freed.append(os.getpid())


def test_a_worker_does_not_collect_the_garbage_of_its_parent() -> None:
    def collected(worker: int, task: int) -> list[int]:
        gc.collect()
        return [pid for pid in Garbage.freed if pid == os.getpid()]

    gc.collect()
    gc.disable()
    try:
        Garbage()
        pool = Pool(1, collected)
        assert not gc.isenabled()
    finally:
        gc.enable()
    try:
        assert list(pool.map([0])) == [(0, 0, [])]
    finally:
        pool.close()
    gc.collect()
    assert os.getpid() in Garbage.freed


def test_an_error_carries_the_workers_traceback() -> None:
    pool = Pool(1, lambda worker, task: 1 // task)
    try:
        with pytest.raises(WorkerError, match="ZeroDivisionError"):
            list(pool.map([0]))
    finally:
        pool.close()


def test_a_dead_worker_is_replaced_and_its_task_done_again(tmp_path: Path) -> None:
    def handler(worker: int, task: int) -> int:
        marker = tmp_path / str(task)
        if task == 3 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return task

    pool = Pool(2, handler)
    try:
        assert sorted(r for _, _, r in pool.map(range(8))) == list(range(8))
    finally:
        pool.close()


def test_a_task_that_always_kills_its_worker_is_given_up() -> None:
    pool = Pool(1, lambda worker, task: os.kill(os.getpid(), signal.SIGKILL))
    try:
        with pytest.raises(WorkerError, match="died 3 times"):
            list(pool.map([0]))
    finally:
        pool.close()


def test_a_run_survives_a_killed_worker_to_the_same_bytes(digits: Pooled) -> None:
    from fedalpha.engine.backends import embedded

    crews: list[embedded._Crew] = []
    plain = embedded._Crew.__init__

    def remember(self: embedded._Crew, *arguments: object) -> None:
        plain(self, *arguments)  # type: ignore[arg-type]
        crews.append(self)

    class Kill(Callback):
        def on_round(self, row: Row, state: ServerState) -> bool | None:
            if row["round"] == 1:
                assert crews[0]._pool is not None
                os.kill(crews[0]._pool.pids()[0], signal.SIGKILL)
            return None

    undisturbed = fedalpha.run(digits, "mlp", rounds=3, engine="embedded(workers=2)")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded._Crew, "__init__", remember)
        killed = fedalpha.run(digits, "mlp", rounds=3, engine="embedded(workers=2)", callbacks=[Kill()])
    assert same_model(killed, undisturbed)
    assert without_times(killed) == without_times(undisturbed)


def test_workers_do_not_outlive_their_parent() -> None:
    script = """
import time
from fedalpha.engine.backends.pool import Pool
pool = Pool(2, lambda worker, task: time.sleep(60))
print(*pool.pids(), flush=True)
list(pool.map([0, 1]))
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    workers = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(workers) == 2
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 600
    while any(_alive(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_alive(pid) for pid in workers)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _collected(data: Pooled, seen: list[object], keep: bool) -> list[list[int]]:
    """Two rounds whose models are collected, on two workers; the workers' process ids after each."""
    engine = embedded(workers=2).start(data, data.task, sgd(lr=0.1), seed=0)
    torch.manual_seed(0)
    model = MODELS.parse("mlp").layers(data.shape, data.classes)
    sent = Broadcast(Template(model), {k: v.clone() for k, v in model.state_dict().items()})
    pids = []
    try:
        for round in (0, 1):
            reports = engine.update(sent, Train(round, np.arange(data.clients)))
            pids.append(engine._crew._pool.pids())  # type: ignore[attr-defined]
            seen.append([{k: v.clone() for k, v in r.parameters.items()} for r in reports.items])
            if keep:
                seen.append([r.parameters["output.weight"].numpy()[1:] for r in reports.items])
            del reports
    finally:
        engine.close()
    return pids


def test_models_are_lent_without_a_copy_and_outlive_the_round(digits: Pooled) -> None:
    plain: list[object] = []
    kept: list[object] = []
    first, second = _collected(digits, plain, keep=False)
    assert first == second  # the same memory, the same workers
    first, second = _collected(digits, kept, keep=True)
    assert first != second  # the memory of the first round is still in use
    for copies, views in ((kept[0], kept[1]), (kept[2], kept[3])):
        for model, view in zip(copies, views, strict=True):  # type: ignore[call-overload]
            assert np.array_equal(model["output.weight"].numpy()[1:], view)
    for ours, theirs in zip((plain[0], plain[1]), (kept[0], kept[2]), strict=True):
        for a, b in zip(ours, theirs, strict=True):  # type: ignore[call-overload]
            assert all(torch.equal(a[k], b[k]) for k in a)


def test_large_models_have_one_sum_per_worker_and_the_same_bytes(
    digits: Pooled, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedalpha.engine.backends import embedded as backend

    runs = []
    for least in (1 << 24, 0):
        monkeypatch.setattr(backend, "_LARGE", least)
        runs.append(fedalpha.run(digits, "mlp", rounds=2, engine="embedded(workers=2)"))
    assert same_model(*runs)
    assert without_times(runs[0]) == without_times(runs[1])
