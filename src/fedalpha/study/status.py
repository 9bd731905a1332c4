"""How far a study is: done, running, time left."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedalpha.study.cells import Cell
from fedalpha.study.plan import STORED, Study, study
from fedalpha.study.store import Store


@dataclass(frozen=True)
class Status:
    """Counts of cells, what runs now, what failed, and the seconds that the rest will take (None: unknown)."""

    total: int
    done: int
    coinciding: int
    stopped: int
    running: list[dict[str, Any]]
    failed: list[str]
    seconds_left: float | None


def load_study(folder: str | Path) -> tuple[Study, list[Cell], Store]:
    """The study of a folder, as it was last run."""
    store = Store(folder)
    file = store.folder / "study.json"
    if not file.exists():
        raise ValueError(f"{folder} is not a study's folder: it has no study.json; `fedalpha study FILE` makes one")
    plan = store.plan()
    return study(plan["study"], STORED), [Cell.from_entry(entry) for entry in plan["cells"]], store


def status(folder: str | Path) -> Status:
    """Read a study's folder, while it runs or later."""
    _, cells, store = load_study(folder)
    unique = {cell.key: cell for cell in cells}
    done = {key for key, cell in unique.items() if store.has(cell)}
    results = [store.get(key) for key in done]
    running = []
    for key in unique.keys() - done:
        record = _record(store.log / f"{key}.running")
        if record is not None and _alive(record["pid"]):
            running.append({**record, "cell": key})
    failed = [unique[key].label for key in unique if key not in done and (store.log / f"{key}.error").exists()]
    return Status(
        total=len(unique),
        done=len(done),
        coinciding=sum("coincides_with" in r.about for r in results),
        stopped=sum(r.stopped for r in results),
        running=sorted(running, key=lambda r: str(r["label"])),
        failed=failed,
        seconds_left=_left(store, len(unique) - len(done), running),
    )


def _left(store: Store, missing: int, running: list[dict[str, Any]]) -> float | None:
    """From the mean time of the cells that were run here: an upper bound, as coinciding cells cost nothing."""
    if missing == 0:
        return 0.0
    file = store.log / "times.jsonl"
    times = [float(json.loads(line)["seconds"]) for line in file.read_text().splitlines()] if file.exists() else []
    if times:
        mean = sum(times) / len(times)
    else:
        speeds = [float(r["time"] - r["started"]) / r["round"] * r["rounds"] for r in running if r["round"]]
        if not speeds:
            return None
        mean = sum(speeds) / len(speeds)
    spent: float = sum(min(time.time() - r["started"], 0.95 * mean) for r in running)
    return max(0.0, missing * mean - spent) / max(1, len(running) or (os.cpu_count() or 1))


def _record(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
