"""A pool of forked workers that die with their parent and are replaced when they die.

Workers are forked, so they share the data and any user code with the parent without copying or
pickling; results that are large travel through shared memory, the rest through pipes.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import os
import pickle
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

Handler = Callable[[int, Any], Any]
"""``handler(place, task) -> result`` runs in a worker; no other worker uses that place at the same time."""
PLACES = 2
"""Per worker, unless the pool is given another number."""

_RETRIES = 3
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # as in malloc.h


class WorkerError(RuntimeError):
    """A task failed in a worker; the message carries the worker's traceback."""


class Pool:
    """``map`` sends tasks to workers in order and yields (index, place, result) as they finish."""

    def __init__(self, workers: int, handler: Handler, places: int = PLACES) -> None:
        self._handler, self._places = handler, places
        self._context = multiprocessing.get_context("fork")
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        for index in range(workers):
            pipe, process = self._start(index)
            self._pipes.append(pipe)
            self._processes.append(process)

    def map(self, tasks: Sequence[Any], ordered: bool = False) -> Iterator[tuple[int, int, Any]]:
        """Send each task to the next free worker.

        With two places, a worker gets its next task before its last result is taken, and uses the places in turn: what
        it wrote at one stays there until that result is taken. With one place it waits until then. ``ordered``: with
        one place, results come in the order of the tasks, so that nobody has to copy what was written too early.
        """
        early: dict[int, tuple[int, Any]] = {}
        following = 0
        waiting = deque(range(len(tasks)))
        tries = [0] * len(tasks)
        busy: dict[int, tuple[int, int]] = {}
        turns = [0] * len(self._pipes)

        def give(worker: int) -> None:
            if waiting:
                index, place = waiting.popleft(), self._places * worker + turns[worker] % self._places
                turns[worker] += 1
                busy[worker] = index, place
                with contextlib.suppress(BrokenPipeError):  # the loop below notices that the worker has died
                    self._pipes[worker].send_bytes(pickle.dumps((place, tasks[index])))

        for worker in range(len(self._pipes)):
            give(worker)
        while busy:
            for pipe in wait([self._pipes[w] for w in busy]):
                worker = next(w for w in busy if self._pipes[w] is pipe)
                index, place = busy.pop(worker)
                try:
                    answer = self._pipes[worker].recv_bytes()
                except (EOFError, OSError):
                    tries[index] += 1
                    if tries[index] >= _RETRIES:
                        raise WorkerError(
                            f"a worker died {_RETRIES} times on the same task (killed, or out of memory?); "
                            "try fewer --workers"
                        ) from None
                    self._replace(worker)
                    waiting.appendleft(index)
                    give(worker)
                    continue
                if self._places > 1:
                    give(worker)
                kind, value = pickle.loads(answer)
                if kind == "error":
                    raise WorkerError(value)
                if not ordered or self._places > 1:
                    yield index, place, value
                    if self._places == 1:
                        give(worker)
                    continue
                early[index] = place, value
                while following in early:  # with one place, a place is a worker
                    yield following, *early[following]
                    give(early.pop(following)[0])
                    following += 1

    def pids(self) -> list[int]:
        return [p.pid for p in self._processes]

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()  # workers exit when their pipe is closed
        for process in self._processes:
            process.join(timeout=1)
            if process.is_alive():
                process.kill()
                process.join()
        self._pipes, self._processes = [], []

    def _start(self, index: int) -> tuple[Connection, Any]:
        ours, theirs = self._context.Pipe()
        # Bound methods and closures are fine: a forked child needs no pickling.
        process = self._context.Process(
            target=_work, args=(theirs, [*self._pipes, ours], self._handler, os.getpid()), daemon=True
        )
        with forking():
            process.start()
        theirs.close()
        return ours, process

    def _replace(self, worker: int) -> None:
        self._pipes[worker].close()
        self._processes[worker].join(timeout=1)
        self._pipes[worker], self._processes[worker] = self._start(worker)


@contextlib.contextmanager
def forking() -> Iterator[None]:
    """While this is open nothing is collected, in a process that is forked meanwhile until it calls `forked`."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def forked() -> None:
    """Never collect the garbage that a forked process has from its parent.

    A finaliser may wait for a thread that only the parent has: that of Ray's client waits forever.
    """
    gc.freeze()
    gc.enable()


def keep_freed_memory() -> None:
    """Let malloc serve this process's activations from memory it keeps, not from new pages at every step (glibc)."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        # Larger tensors, such as the gradients of a large layer, are given back: in kept memory they leave gaps.
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 25)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def _work(pipe: Connection, inherited: list[Connection], handler: Handler, parent: int) -> None:
    forked()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: never outlive the parent
        if os.getppid() != parent:
            return
    for other in inherited:
        with contextlib.suppress(OSError):
            other.close()
    keep_freed_memory()
    import torch

    torch.set_num_threads(1)
    while True:
        try:
            place, task = pickle.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            return
        try:
            answer = ("ok", handler(place, task))
        except Exception:
            answer = ("error", traceback.format_exc())
        try:
            pipe.send_bytes(pickle.dumps(answer))
        except OSError:
            return
