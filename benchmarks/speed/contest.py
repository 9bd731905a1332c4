"""Runs one contestant: a process, its report, and its memory."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.speed.environments import ROOT, SCRIPTS
from benchmarks.speed.memory import tree, used

EVERY = 0.1
"""Seconds between two samples of the memory."""


@dataclass(frozen=True)
class Contestant:
    """A command that is measured in a workload. ``whole``: the process itself is timed, not rounds that it reports.
    ``once``: too slow to repeat; its only round counts.

    ``model``: where it keeps the model that is compared, in a folder of prepared work ``work``.
    """

    workload: str
    name: str
    title: str
    command: Sequence[str]
    ours: bool = False
    whole: bool = False
    once: bool = False
    work: Path | None = None
    model: Path | None = None


def measure(contestant: Contestant, limit: float, watch: bool) -> dict[str, Any]:
    """Run it once and return what it reported, as JSON.

    With ``watch`` its memory is sampled; that costs time, so such a run counts for memory only.
    """
    found: dict[str, Any] = {"seconds": [], "extra_bytes": [], "versions": {}}
    if contestant.model is not None:
        contestant.model.unlink(missing_ok=True)
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        started = time.perf_counter()
        process = subprocess.Popen(
            list(contestant.command), stdout=out, stderr=err, env=_environment(contestant.ours), start_new_session=True
        )
        try:
            if watch:
                found["pss"], found["rss"] = _watch(process, limit)
            process.wait(max(limit - (time.perf_counter() - started), 0.01))
        except subprocess.TimeoutExpired:
            found["error"] = f"not done after {limit:g} s"
        finally:
            if process.poll() is None:
                end(process)
        elapsed = time.perf_counter() - started
        out.seek(0)
        for line in out:
            _read(line, found)
        if process.returncode and "error" not in found:
            err.seek(0)
            lines = [line.strip() for line in err if line.strip()]
            telling = [line for line in lines if "Error" in line.partition(":")[0]] or lines or ["it wrote nothing"]
            found["error"] = f"ended with {process.returncode}: {telling[-1][:300]}"
    if contestant.whole:
        found["seconds"] = [elapsed]
    elif not found["seconds"] and "error" not in found:
        found["error"] = "it reported no round"
    return found


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process that this module started, and its descendants."""
    for pid in reversed(tree(process.pid)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _watch(process: subprocess.Popen[bytes], limit: float) -> tuple[int | None, int | None]:
    started = time.perf_counter()
    pss = rss = 0
    while process.poll() is None and time.perf_counter() - started < limit:
        now = used(process.pid)
        pss, rss = max(pss, now[0]), max(rss, now[1])
        time.sleep(EVERY)
    return pss or None, rss or None


def _read(line: str, found: dict[str, Any]) -> None:
    try:
        said = json.loads(line)
    except ValueError:
        return
    if not isinstance(said, dict):
        return
    match said.pop("event", None):
        case "round":
            found["seconds"].append(said["seconds"])
            if said.get("extra_bytes") is not None:
                found["extra_bytes"].append(said["extra_bytes"])
        case "versions":
            found["versions"] |= said
        case "rule" | "machine":
            found |= said


def _environment(ours: bool) -> dict[str, str]:
    """The caller's environment, without variables that would change a peer's threads or paths.

    Only with ``ours`` can it import fedalpha and the benchmarks, from where this process imports them.
    """
    import fedalpha

    dropped = ("PYTHONPATH", "PYTHONHOME", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    path = [str(SCRIPTS), *([str(Path(fedalpha.__file__).parents[1]), str(ROOT)] if ours else [])]
    return kept | {
        "PYTHONPATH": os.pathsep.join(path),
        "JAX_PLATFORMS": "cpu",
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }
