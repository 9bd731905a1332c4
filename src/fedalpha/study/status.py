"""The progress of a study: finished and running cells, time left."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from fedalpha.plugins import is_loaded
from fedalpha.study.cells import Cell, grouped
from fedalpha.study.plan import STORED, Study, study
from fedalpha.study.seeds import MOST_CELLS
from fedalpha.study.store import Store
from fedalpha.study.tables import Result
from fedalpha.text import cleaned, shown


@dataclass(frozen=True)
class Status:
    """Counts of cells, the running and the failed cells, and the estimated seconds for the rest (None: unknown).

    ``not_begun`` is the number of cases without a timed cell; the estimate assumes that they are like the others.
    """

    total: int
    done: int
    coinciding: int
    stopped: int
    running: list[dict[str, Any]]
    failed: list[str]
    seconds_left: float | None
    not_begun: int


def load_study(folder: str | Path) -> tuple[Study, list[Cell], Store]:
    """The study of a folder, as it was last run."""
    store = Store(folder)
    file = store.folder / "study.json"
    if not file.is_symlink() and not file.exists():
        raise ValueError(f"{folder} is not a study's folder: it has no study.json; `fedalpha study FILE` makes one")
    plan = store.plan()
    try:
        found = study(plan["study"], STORED)
        if len(plan["cells"]) > MOST_CELLS:
            raise ValueError(f"it has more than {MOST_CELLS:,} cells")
        cells = [Cell.from_entry(cleaned(entry)) for entry in plan["cells"]]
        known = {(case, strategy) for case in found.variations() for strategy in found.names}
        if not cells or any((cell.case, cell.strategy) not in known for cell in cells):
            raise ValueError("its cells are not those of its study")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if (plugin := _unloaded(plan)) is not None:
            said = f"cannot read {file} without its plugin: {shown(error)}"
            raise ValueError(f"{said}; if you trust {plugin}, name it: --plugin {plugin}") from None
        raise ValueError(
            f"{file} is damaged: {shown(error)}; delete it and run `fedalpha study {folder}`, which writes it again"
        ) from None
    return found, cells, store


def _unloaded(plan: dict[str, Any]) -> str | None:
    """The plugin that a study names, if it was not loaded."""
    study = plan.get("study")
    given = study.get("settings") if isinstance(study, dict) else None
    name = given.get("plugin") if isinstance(given, dict) else None
    return None if not isinstance(name, str) or is_loaded(name) else shown(name)


def status(folder: str | Path) -> Status:
    """Read the status of a study's folder, while the study runs or later."""
    _, cells, store = load_study(folder)
    unique = {cell.key: cell for cell in cells}
    done = {key: store.get(key) for key, cell in unique.items() if store.has(cell)}
    running = []
    for key in unique.keys() - done.keys():
        record = _record(store.read_log(f"{key}.running"))
        if record is not None and _alive(record["pid"]):
            running.append({**record, "label": shown(record["label"]), "cell": key})
    failed = [unique[key].label for key in unique if key not in done and store.read_log(f"{key}.error")]
    left, not_begun = _left(store, unique, done, running)
    return Status(
        total=len(unique),
        done=len(done),
        coinciding=sum("coincides_with" in r.about for r in done.values()),
        stopped=sum(r.stopped for r in done.values()),
        running=sorted(running, key=lambda r: str(r["label"])),
        failed=failed,
        seconds_left=left,
        not_begun=not_begun,
    )


def _left(
    store: Store, cells: dict[str, Cell], done: dict[str, Result], running: list[dict[str, Any]]
) -> tuple[float | None, int]:
    """The seconds for all remaining rounds, each with the time of the most similar cells that were timed here.

    Also returns the number of remaining cases without a timed cell.
    """
    missing = [cell for key, cell in cells.items() if key not in done]
    played = _times(store.read_log("times.jsonl"))
    played += [{**r, "rounds": r["round"] - r["begun"], "seconds": r["time"] - r["started"]} for r in running]
    pace, length = _Means(), _Means()
    for record in played:
        if record["cell"] in cells and record["rounds"]:
            pace.add(cells[record["cell"]], record["seconds"] / record["rounds"])
    for key, result in done.items():
        length.add(cells[key], result.last)
    at = {r["cell"]: r["round"] for r in running}
    groups = grouped(cells.values())
    not_begun = len({cell.case for cell in missing} - {cells[r["cell"]].case for r in played if r["cell"] in cells})
    seconds = 0.0
    for cell in missing:
        stop = None if cell.stop_at is None else length.of(cell)
        last = cell.settings.rounds if stop is None else stop
        begun = at[cell.key] if cell.key in at else _shared(cell, groups[cell.group])
        each = pace.of(cell)
        if each is None:
            return None, not_begun
        seconds += max(0.0, last - begun) * each
    return seconds / max(1, len(running) or (os.cpu_count() or 1)), not_begun


def _shared(cell: Cell, group: list[Cell]) -> int:
    """The rounds that need not be played, because an earlier cell plays them."""
    earlier = itertools.takewhile(lambda other: other.key != cell.key, group)
    try:
        return max((cell.shared(other) for other in earlier), default=0)
    except ValueError:  # a plugin's strategy: a study's folder is read without the plugin
        return 0


class _Means:
    """Values of cells, averaged over the cells most similar to a given one."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, ...], list[float]] = {}

    @staticmethod
    def _kinds(cell: Cell) -> list[tuple[str, ...]]:
        return [(cell.case, cell.strategy), (cell.case,), ()]

    def add(self, cell: Cell, value: float) -> None:
        for kind in self._kinds(cell):
            self._seen.setdefault(kind, []).append(value)

    def of(self, cell: Cell) -> float | None:
        found = next((self._seen[kind] for kind in self._kinds(cell) if kind in self._seen), None)
        return None if found is None else mean(found)


_NUMBER = int | float
_RUNNING = {"pid": int, "label": str, "started": _NUMBER, "time": _NUMBER, "begun": int, "round": int, "rounds": int}
_TIME = {"cell": str, "rounds": int, "seconds": _NUMBER}


def _record(text: str | None, form: Mapping[str, Any] = _RUNNING) -> dict[str, Any] | None:
    """A record of the log; None if it is not there or not of this form."""
    try:
        found: Any = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    whole = isinstance(found, dict) and all(isinstance(found.get(name), kind) for name, kind in form.items())
    if not whole or not isinstance(found.get("accuracy", 0.0), _NUMBER | None):
        return None
    numbers = [value for value in found.values() if isinstance(value, _NUMBER)]
    return found if all(-(2**53) <= value <= 2**53 for value in numbers) else None


def _times(text: str | None) -> list[dict[str, Any]]:
    found = (_record(line, _TIME) for line in (text or "").splitlines())
    return [record for record in found if record is not None]


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
