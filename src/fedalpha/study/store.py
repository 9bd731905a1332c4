"""The folder of a study: plain files, each written atomically.

- ``study.toml``: the study as it was last run; ``study.json``: its cells, their keys and labels.
- ``cells/<key>.parquet``: a cell that was finished since the study was started; one row per round, and the
  facts of the cell: its configuration, its hash, the versions it ran with, why it ended, and which cell it
  coincides with.
- ``cells.parquet``: all cells, into which those files are packed when the study has run.
- ``rounds.csv``: the numbers of all cells in one table, made from the cells.
- ``log/``: running cells, times and errors; not results, safe to delete, not to be committed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedalpha.analysis.columns import numbers
from fedalpha.store import FormatError
from fedalpha.store.files import sweep, write_atomically
from fedalpha.study import tables
from fedalpha.study.cells import Cell
from fedalpha.study.tables import FORMAT, Result, check_format


class Store:
    """Reads and writes a study's folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.cells = self.folder / "cells"
        self.packed = self.folder / "cells.parquet"
        self.log = self.folder / "log"
        self._pack: tuple[Any, dict[str, Any]] = (None, {})

    def path(self, key: str) -> Path:
        """The file of a cell that is not packed yet."""
        return self.cells / f"{key}.parquet"

    def has(self, cell: Cell) -> bool:
        return self.finished(cell.key)

    def finished(self, key: str) -> bool:
        """Whether a cell is stored."""
        return self.path(key).exists() or key in self._tables()

    def put(self, cell: Cell, columns: dict[str, list[Any]], about: dict[str, Any]) -> None:
        """Store a finished cell."""
        self.cells.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path(cell.key), tables.content(tables.table_of(cell, columns, about)))

    def get(self, key: str) -> Result:
        """A finished cell."""
        path = self.path(key)
        table = _single(path) if path.exists() else self._tables().get(key)  # it may have been packed a moment ago
        if table is None:
            raise ValueError(f"{self.folder} does not have the cell {key}; run the study")
        return tables.result_of(key, table)

    def pack(self, cells: Sequence[Cell]) -> None:
        """Put every stored cell into ``cells.parquet``, those of the study first, and remove the single files.

        A crash leaves the cells in both places, or in the single files alone; the next call repairs that.
        """
        single = sorted(self.cells.glob("*.parquet"))
        if not single:
            return
        found = dict(self._tables())
        for path in single:
            found[path.stem] = _single(path)
        planned = [cell.key for cell in cells if cell.key in found]
        keys = dict.fromkeys([*planned, *sorted(found)])
        write_atomically(self.packed, tables.content(tables.joined(found[key] for key in keys)))
        for path in single:
            path.unlink()
        if not any(self.cells.iterdir()):
            self.cells.rmdir()

    def _tables(self) -> dict[str, Any]:
        """The cells of ``cells.parquet`` by key, read again when the file has changed."""
        try:
            now = self.packed.stat()
        except FileNotFoundError:
            return {}
        mark = (now.st_ino, now.st_mtime_ns, now.st_size)
        if self._pack[0] != mark:
            self._pack = (mark, _read(self.packed))
        return self._pack[1]

    def plan(self) -> dict[str, Any]:
        """What ``study.json`` holds."""
        file = self.folder / "study.json"
        try:
            found: dict[str, Any] = json.loads(file.read_text())
        except (OSError, ValueError) as error:
            raise ValueError(
                f"cannot read {file}: {error}; delete it and run `fedalpha study {self.folder}`, which writes it again"
            ) from None
        check_format(found.get("format", 1), self.folder)
        return found

    def write_plan(self, text: str, plan: dict[str, Any]) -> None:
        """``study.toml`` and ``study.json``; a folder that holds another study is refused."""
        file = self.folder / "study.json"
        if file.exists() and (name := self.plan()["study"]["name"]) != plan["study"]["name"]:
            raise ValueError(
                f"{self.folder} holds the study {name!r}; choose another folder for {plan['study']['name']!r}"
            )
        write_text(self.folder / "study.toml", text)
        write_text(
            self.folder / "study.json", json.dumps({"format": FORMAT, **plan}, indent=1, ensure_ascii=False) + "\n"
        )

    def write_rounds(self, cells: Sequence[Cell]) -> None:
        """``rounds.csv``: the numbers of every finished cell, in the order of the plan."""
        import csv
        import io

        names = [found.name for found in numbers()]
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["case", "strategy", "seed", "round", *names, "cell", "coincides_with"])
        for cell in cells:
            if not self.has(cell):
                continue
            result = self.get(cell.key)
            for i, number in enumerate(result.columns["round"]):
                values = [result.columns[name][i] if name in result.columns else None for name in names]
                shown = ["" if v is None else v for v in values]
                twin = result.about.get("coincides_with", "")
                writer.writerow([cell.case, cell.strategy, cell.seed, number, *shown, cell.key, twin])
        write_text(self.folder / "rounds.csv", out.getvalue())

    def sweep(self) -> None:
        """Remove the temporary files that a killed process left."""
        for folder in (self.folder, self.cells, self.log):
            sweep(folder)

    def strangers(self, cells: Sequence[Cell]) -> int:
        """How many stored cells are not among these. They are kept, but no table shows them."""
        planned = {cell.key for cell in cells}
        there = {path.stem for path in self.cells.glob("*.parquet")} | self._tables().keys()
        return len(there - planned)


def write_text(path: Path, text: str) -> None:
    """Write a file atomically; an unchanged file is not written."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """The same for bytes."""
    if path.exists() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)


def _single(path: Path) -> Any:
    """The table in a file of one cell, which is named after its key."""
    found = _read(path)
    if list(found) != [path.stem]:
        raise ValueError(f"{path} holds another cell ({', '.join(found)}); delete it to run the right cell again")
    return found[path.stem]


def _read(path: Path) -> dict[str, Any]:
    """The table of each cell of a file, by key."""
    pyarrow, _ = tables.arrow()
    try:
        return tables.split(tables.read(path))
    except FormatError:
        raise
    except (OSError, KeyError, TypeError, ValueError, pyarrow.ArrowException) as error:
        raise ValueError(f"cannot read the cells in {path}: {error}; delete it to run them again") from None
