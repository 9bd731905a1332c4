"""The running cells of a study, each in its own process with one worker.

A cell is stored only when it is finished, so cells that are not stored are simply run. A cell that may
have the same rows as an earlier one waits for it, and copies its rows if the two cells coincide.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedalpha.analysis.columns import PerClient
from fedalpha.plugins import load_plugin
from fedalpha.study.cells import Cell, grouped
from fedalpha.study.halfway import Save, beginning, branch, clear, donors, is_there
from fedalpha.study.store import Store

if TYPE_CHECKING:
    from fedalpha.analysis.history import History, Row
    from fedalpha.round import ServerState

Watch = Callable[[int, int, list[str]], None]
"""Called repeatedly with the cells done, the cells in total, and the labels of the running cells."""


class Crew:
    """The running cells of one study, each in its own process."""

    goes_on = True
    """Whether a cell can start from another cell's state after the rounds that they share."""

    def __init__(self, store: Store, cells: Sequence[Cell], per_client: PerClient, watch: Watch | None) -> None:
        self.store = store
        self.cells = list({cell.key: cell for cell in cells}.values())
        self.per_client = per_client
        self.watch = watch or (lambda done, total, running: None)
        self.done = {cell.key for cell in self.cells if store.has(cell)}
        self.running: dict[str, Any] = {}
        self.errors: dict[str, str] = {}
        self.groups = grouped(self.cells)
        self.donors = {key: donor for group in self.groups.values() for key, donor in donors(group).items()}

    def run(self, jobs: int | None = None) -> dict[str, str]:
        """Run all missing cells, ``jobs`` at a time (`room` by default). Returns the errors."""
        if len(self.done) < len(self.cells):
            import fedalpha.runs.experiment  # noqa: F401 - imported once, before processes are forked
        try:
            while True:
                self._start(jobs or self.room())
                labels = [cell.label for cell in self.cells if cell.key in self.running]
                self.watch(len(self.done), len(self.cells), labels)
                if not self.running:
                    return self.errors | self._held_up()
                self.wait()
                self.collect()
        finally:
            self.stop()

    def kept(self, cell: Cell) -> PerClient:
        """The per-client columns that a cell stores: a report draws those of the first seed."""
        return "none" if self.per_client == "drawn" and cell.seed != self.cells[0].seed else self.per_client

    def room(self) -> int:
        """The number of cells that can run at a time."""
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    def launch(self, cell: Cell) -> Any:
        """Start a cell. Returns its handle, which is in `running` until the cell ends."""
        from fedalpha.engine.backends.pool import forking

        methods = multiprocessing.get_all_start_methods()
        context: Any = multiprocessing.get_context("fork" if "fork" in methods else "spawn")
        job = _Job(self.store.folder, cell, self.donors.get(cell.key), self._marks(cell), self.kept(cell))
        process = context.Process(target=_work, args=(job, os.getpid()))
        with forking():
            process.start()
        return process

    def wait(self) -> None:
        """Wait until a cell ends, for at most a second."""
        wait([process.sentinel for process in self.running.values()], timeout=1.0)

    def stop(self) -> None:
        """Terminate all running cells."""
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.join()

    def _start(self, jobs: int) -> None:
        for cell in self.cells:
            if cell.key in self.done or cell.key in self.running or cell.key in self.errors:
                continue
            if self._awaited(cell):
                continue
            if self._take_over(cell):
                continue
            if len(self.running) < jobs:
                self.running[cell.key] = self.launch(cell)

    def _awaited(self, cell: Cell) -> bool:
        """Whether this cell must wait: an earlier, unfinished cell may have the same rows, or the same first rows.

        A cell that failed blocks those that may have its rows, so that timing does not decide which of them is
        computed.
        """
        donor = self.donors.get(cell.key)
        if donor is not None and is_there(branch(self.store, donor, cell.shared(donor)), self.store.folder):
            return False  # its donor played beyond the shared rounds, so no cell has the same rows
        for other in self.groups[cell.group]:
            if other.key == cell.key:
                return False
            if (not cell.shared(other) and cell.settings.rounds) or other.key in self.done:
                continue
            if _may_coincide(cell, other) or (self.goes_on and donor is other and other.key not in self.errors):
                return True
        return False

    def _held_up(self) -> dict[str, str]:
        """The cells that were not run because a cell that may have their rows failed."""
        left = (cell for cell in self.cells if cell.key not in self.done and cell.key not in self.errors)
        return {cell.key: f"{cell.label}\nnot run: it may have the rows of a cell that failed" for cell in left}

    def _marks(self, cell: Cell) -> frozenset[int]:
        """The rounds after which other cells start from this cell's state."""
        followers = [other for other in self.groups[cell.group] if self.donors.get(other.key) is cell]
        return frozenset(other.shared(cell) for other in followers if other.key not in self.done)

    def _take_over(self, cell: Cell) -> bool:
        """Store the rows of a finished twin as this cell's rows, if there is one."""
        for other in self.groups[cell.group]:
            if other.key == cell.key or other.key not in self.done or not _may_coincide(cell, other):
                continue
            found = self.store.get(other.key)
            if found.last <= cell.shared(other):
                twin = found.about.get("coincides_with", other.key)
                about = {k: v for k, v in found.about.items() if k in ("ended", "versions", "machines")}
                self.store.put(cell, found.columns, {**about, "coincides_with": twin})
                self.done.add(cell.key)
                return True
        return False

    def collect(self) -> None:
        """Record the cells that have ended, and how they ended."""
        for key, process in list(self.running.items()):
            if process.is_alive():
                continue
            process.join()
            del self.running[key]
            if self.store.finished(key):
                self.done.add(key)
                continue
            error = self.store.read_log(f"{key}.error")
            killed = f"the process ended with code {process.exitcode} (killed? out of memory?); run the study again"
            label = next(cell.label for cell in self.cells if cell.key == key)
            self.errors[key] = f"{label}\n{killed}" if error is None else error


def _may_coincide(cell: Cell, other: Cell) -> bool:
    shared = cell.shared(other)
    return shared >= cell.settings.rounds or (shared > 0 and cell.stop_at is not None)


@dataclass(frozen=True)
class _Job:
    """The arguments of a cell's process."""

    folder: Path
    cell: Cell
    donor: Cell | None
    marks: frozenset[int]
    per_client: PerClient


def _work(job: _Job, parent: int) -> None:
    """Run one cell in its own process."""
    import torch

    from fedalpha.engine.backends.pool import forked, keep_freed_memory

    forked()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _die_with_parent()
    keep_freed_memory()
    torch.set_num_threads(1)  # before anything is computed: the threads of the parent are not in a forked process
    cell = job.cell
    store = Store(job.folder)
    error = f"{cell.key}.error"
    try:
        store.drop_log(error)
        begin = beginning(store, cell, job.donor)
        save = Save(store, cell, job.marks, begin.machines if begin else [])
        watchers = [save, _progress(store, cell, parent)]
        started = time.time()
        found, about = measure(cell, job.per_client, watchers, (begin.state, begin.rows) if begin else None)
        if len(save.machines) > 1:
            about["machines"] = save.machines
        store.put(cell, found, about | shares(cell, job.donor))
        played = len(found["round"]) - (len(begin.rows) if begin else 1)
        note_time(store, cell, played, time.time() - started)
        clear(store, cell)
    except Exception:
        store.write_text(store.log / error, f"{cell.label}\n{traceback.format_exc()}")
        sys.exit(1)
    finally:
        store.drop_log(f"{cell.key}.running")


def shares(cell: Cell, donor: Cell | None) -> dict[str, Any]:
    """The note about a cell that shares its first rounds with ``donor``."""
    return {} if donor is None else {"shares": {"cell": donor.key, "rounds": cell.shared(donor)}}


def measure(
    cell: Cell, per_client: PerClient, callbacks: Sequence[Any], begin: tuple[ServerState, list[Row]] | None = None
) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """Run a cell in this process, from ``begin`` if it is given, to its end or ``stop_at``. Returns its columns, and
    how it ended.
    """
    import torch

    from fedalpha.runs.callbacks import StopWhen
    from fedalpha.runs.machine import versions

    if cell.settings.plugin is not None:  # this process may be on another machine
        load_plugin(cell.settings.plugin)
    torch.set_num_threads(1)
    stop = [] if cell.stop_at is None else [StopWhen(cell.stop_at)]
    history = cell.settings.run(workers=1, callbacks=[*callbacks, *stop], begin=begin)
    answered = cell.stop_at is not None and cell.stop_at.holds(history.rows)
    ended = "stop_at" if answered and history.rows[-1]["round"] < cell.settings.rounds else "rounds"
    return columns(history, per_client), {"ended": ended, "versions": versions()}


def columns(history: History, per_client: PerClient = "all") -> dict[str, list[Any]]:
    """A history as columns; times are left out, because they are not results."""
    from fedalpha.analysis.columns import stored

    rows = history.rows
    kept = [found for found in stored(per_client) if not found.optional or any(found.name in row for row in rows)]
    return {found.name: [found.read(row) for row in rows] for found in kept}


def _progress(store: Store, cell: Cell, parent: int) -> Any:
    from fedalpha.runs.callbacks import Callback

    class Progress(Callback):
        """Records progress, and exits if the parent has died."""

        started = time.time()
        begun = 0
        said = 0.0

        def on_resume(self, rows: Sequence[Row]) -> None:
            self.begun = rows[-1]["round"]

        def on_round(self, row: Row, state: ServerState) -> bool | None:
            if os.getppid() != parent:
                os._exit(1)
            if time.time() - self.said > 1:
                self.said = time.time()
                note_running(store, cell, self.started, self.begun, row["round"], row["accuracy"])
            return None

    return Progress()


def note_running(
    store: Store, cell: Cell, started: float, begun: int = 0, round: int = 0, accuracy: float | None = None
) -> None:
    """Record the progress of a cell that began at round ``begun`` and has finished round ``round``."""
    record = {"pid": os.getpid(), "label": cell.label, "started": started, "time": time.time()}
    record |= {"begun": begun, "round": round, "rounds": cell.settings.rounds, "accuracy": accuracy}
    store.write_text(store.log / f"{cell.key}.running", json.dumps(record) + "\n")


def note_time(store: Store, cell: Cell, rounds: int, seconds: float) -> None:
    record = {"cell": cell.key, "label": cell.label, "rounds": rounds, "seconds": round(seconds, 3)}
    store.add_to_log("times.jsonl", json.dumps(record) + "\n")


def _die_with_parent() -> None:
    """On Linux a cell's process is killed with its parent; on other systems it exits after its current round."""
    if sys.platform == "linux":
        import ctypes

        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)
