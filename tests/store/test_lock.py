"""The folder's lock: one process at a time, never a worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedalpha.store import FolderLock

HOLD = """
import os, sys, time
from pathlib import Path
from fedalpha.store import FolderLock
with FolderLock(Path(sys.argv[1])):
    if os.fork() == 0:  # a worker that outlives its parent
        time.sleep(60)
        os._exit(0)
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_process_is_refused_and_orphans_do_not_hold_the_lock(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RuntimeError, match=rf"in use by another process \(pid {holder.pid}\)"):
            FolderLock(tmp_path).__enter__()
        os.kill(holder.pid, signal.SIGKILL)
        os.waitpid(holder.pid, 0)
        with FolderLock(tmp_path):  # the orphan is still there
            pass
    finally:
        os.killpg(holder.pid, signal.SIGKILL)
        holder.stdout.close()  # type: ignore[union-attr]


def test_one_process_cannot_lock_twice(tmp_path: Path) -> None:
    with FolderLock(tmp_path):
        with pytest.raises(RuntimeError, match="in use by this process"):
            FolderLock(tmp_path).__enter__()
        child = os.fork()
        if child == 0:  # closing what was inherited must not free the parent's lock
            os.closerange(3, 256)
            os._exit(0)
        os.waitpid(child, 0)
        taken = subprocess.run([sys.executable, "-c", HOLD, str(tmp_path)], capture_output=True, text=True, timeout=600)
        assert "in use by another process" in taken.stderr
    with FolderLock(tmp_path):
        pass


def test_workers_leave_when_their_parent_is_killed(tmp_path: Path) -> None:
    code = (
        "from fedalpha.engine.backends.pool import Pool\nimport time\n"
        "pool = Pool(2, lambda worker, task: time.sleep(60))\nprint(*pool.pids(), flush=True)\n"
        "list(pool.map([1, 2]))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    workers = [int(pid) for pid in parent.stdout.readline().split()]
    time.sleep(0.2)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and any(_alive(pid) for pid in workers):
        time.sleep(0.05)
    assert not any(_alive(pid) for pid in workers)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
