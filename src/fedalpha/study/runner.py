"""Running of a study's cells in parallel; a run can be stopped at any time and started again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from fedalpha.analysis.columns import PerClient
from fedalpha.store import FolderLock
from fedalpha.store.kinds import COMPARISON, RUN, check_kind
from fedalpha.study.cells import Cell
from fedalpha.study.crew import Crew, Watch
from fedalpha.study.halfway import clear_all
from fedalpha.study.plan import Study
from fedalpha.study.store import Store
from fedalpha.study.tables import arrow


class CellError(RuntimeError):
    """Some cells could not be run; the others are finished."""


def run_study(
    study: Study,
    folder: str | Path,
    *,
    text: str = "",
    jobs: int | None = None,
    ray_address: str | None = None,
    watch: Watch | None = None,
) -> Store:
    """Run the missing cells, and return the store with all cells.

    ``text`` is the study's TOML, which is stored in the folder; ``jobs`` the number of cells at a time (all cores by
    default); ``ray_address`` a Ray cluster on which the cells are run. These arguments do not change the results.
    """
    arrow()  # says what to install, before anything is run
    store = Store(folder)
    cells = study.cells()
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs = {jobs}; give at least 1")
    with alone(store):
        store.sweep()
        store.write_plan(text or to_toml(study), plan(study, cells))
        crew = crew_for(store, cells, study.per_client, watch, ray_address)
        errors = crew.run(jobs)
        store.pack(cells)
        store.write_rounds(cells)
        if not errors:
            clear_all(store)
    raise_errors(errors, crew.cells, len(cells), store)
    return store


def crew_for(
    store: Store, cells: Sequence[Cell], per_client: PerClient, watch: Watch | None, ray_address: str | None
) -> Crew:
    """The crew that runs cells on this machine, or on a Ray cluster."""
    if ray_address is None:
        return Crew(store, cells, per_client, watch)
    from fedalpha.study.cluster import RayCrew

    return RayCrew(store, cells, per_client, watch, ray_address)


def raise_errors(errors: Mapping[str, str], unique: Sequence[Cell], planned: int, store: Store) -> None:
    """`CellError` if there are errors, with the first one; ``unique`` are the cells without repetitions."""
    if errors:
        lines = next(iter(errors.values())).strip().splitlines()
        failed = f"{len(errors)} of {planned} cells failed, the others are done"
        if len(errors) == len(unique):
            failed = "every cell failed"
        raise CellError(f"{failed} (in full: {store.log}/*.error). The first, {lines[0]}:\n{_message(lines[1:])}")


def _message(lines: Sequence[str]) -> str:
    """The error at the end of a traceback, with all of its lines.

    >>> _message(["Traceback (most recent call last):", '  File "a.py", line 1, in f', "    g()", "ValueError: a", "b"])
    'ValueError: a\\nb'
    """
    frames = [i for i, line in enumerate(lines) if line.startswith("  File ")]
    after = lines[frames[-1] + 1 :] if frames else lines
    start = next((i for i, line in enumerate(after) if line and not line.startswith(" ")), 0)
    return "\n".join(after[start:])


def plan(study: Study, cells: Sequence[Cell]) -> dict[str, Any]:
    """The content of ``study.json``."""
    return {"study": study.model_dump(mode="json", exclude_unset=True), "cells": [cell.entry() for cell in cells]}


def to_toml(study: Study) -> str:
    """A study as a TOML file."""
    try:
        import tomli_w
    except ImportError:
        raise RuntimeError('studies need tomli-w; install it with: pip install "fedalpha[studies]"') from None
    return tomli_w.dumps(study.model_dump(mode="json", exclude_unset=True, exclude_none=True))


@contextmanager
def alone(store: Store) -> Iterator[None]:
    """Lock the folder, for one runner at a time. The lock is released when the process ends, also if it is killed."""
    check_kind(store.folder, "a study", RUN, COMPARISON)
    with ExitStack() as stack:
        try:
            store.folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FolderLock(store.log, store.folder))
        except OSError as error:
            raise RuntimeError(f"cannot write to {store.folder}: {error.strerror}; choose another folder") from None
        yield
