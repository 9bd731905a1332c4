"""The folder of a study: plain files, each written atomically.

- ``study.toml``: the study as it was last run; ``study.json``: its cells, their keys and labels.
- ``cells/<key>.parquet``: a cell that was finished since the study was started; one row per round, and the
  facts of the cell: its configuration, its hash, the versions it ran with, why it ended, and which cell it
  coincides with.
- ``cells.parquet``: all cells, into which those files are packed when the study has run.
- ``rounds.csv``: the numbers of all cells in one table, made from the cells.
- ``log/``: running cells, times and errors. These are no results; the folder can be deleted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedalpha.analysis.columns import numbers
from fedalpha.store import FormatError, LinkError
from fedalpha.store.exports import csv_text
from fedalpha.store.files import append, own_size, read_bytes, remove, sweep, write_atomically
from fedalpha.store.inside import names
from fedalpha.study import tables
from fedalpha.study.cells import Cell
from fedalpha.study.tables import FORMAT, Result, check_format
from fedalpha.text import shown

PLAN_BYTES, LOG_BYTES = 2**28, 2**26
"""The largest sizes of ``study.json``, and of a file of ``log/``."""


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
        return own_size(self.path(key), self.folder) is not None or key in self._tables()

    def put(self, cell: Cell, columns: dict[str, list[Any]], about: dict[str, Any]) -> None:
        """Store a finished cell."""
        self.write(self.path(cell.key), tables.content(tables.table_of(cell, columns, about)))

    def get(self, key: str) -> Result:
        """A finished cell."""
        # It may have been packed a moment ago.
        table = self._single(self.path(key)) or self._tables().get(key)
        if table is None:
            raise ValueError(f"{self.folder} does not have the cell {key}; run the study")
        pyarrow, _ = tables.arrow()
        try:
            return tables.result_of(key, table)
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError, pyarrow.ArrowException) as error:
            raise ValueError(
                f"the cell {key} in {self.folder} is damaged: {shown(error)}; delete the file that holds it to run it "
                "again"
            ) from None

    def pack(self, cells: Sequence[Cell]) -> None:
        """Put every stored cell into ``cells.parquet``, those of the study first, and remove the single files.

        After a crash the cells are in both places, or only in the single files; the next call repairs this.
        """
        single = self._singles()
        if not single:
            return
        found = dict(self._tables())
        for path in single:
            found[path.stem] = self._single(path)
        planned = [cell.key for cell in cells if cell.key in found]
        keys = dict.fromkeys([*planned, *sorted(found)])
        write_atomically(self.packed, tables.content(tables.joined(found[key] for key in keys)))
        for path in single:
            remove(path, self.folder)
        if not names(self.cells, self.folder):
            self.cells.rmdir()

    def _tables(self) -> dict[str, Any]:
        """The cells of ``cells.parquet`` by key, read again when the file has changed."""
        try:
            now = self.packed.lstat()
        except FileNotFoundError:
            return {}
        mark = (now.st_ino, now.st_mtime_ns, now.st_size)
        if self._pack[0] != mark:
            self._pack = (mark, self._read(self.packed))
        return self._pack[1]

    def _singles(self) -> list[Path]:
        """The files of cells that are not packed yet."""
        found = (self.cells / name for name in names(self.cells, self.folder))
        return [path for path in found if path.suffix == ".parquet"]

    def _single(self, path: Path) -> Any:
        """The table in a file of one cell, which is named after its key; None if there is no such file."""
        try:
            found = self._read(path)
        except FileNotFoundError:
            return None
        if list(found) != [path.stem]:
            raise ValueError(
                f"{path} holds another cell ({shown(', '.join(found))}); delete it to run the right cell again"
            )
        return found[path.stem]

    def _read(self, path: Path) -> dict[str, Any]:
        """The table of each cell of a file, by key."""
        pyarrow, _ = tables.arrow()
        try:
            return tables.split(tables.read(path, self.folder))
        except (FormatError, LinkError, FileNotFoundError):
            raise
        except (OSError, KeyError, TypeError, ValueError, RecursionError, pyarrow.ArrowException) as error:
            raise ValueError(f"cannot read the cells in {path}: {shown(error)}; delete it to run them again") from None

    def write(self, path: Path, content: bytes) -> None:
        """Write a file of the folder atomically; an unchanged file is not written."""
        write_bytes(path, content, self.folder)

    def write_text(self, path: Path, text: str) -> None:
        """The same for a text."""
        self.write(path, text.encode())

    def read_log(self, name: str) -> str | None:
        """A file of ``log/``; None if it is not there or cannot be read."""
        try:
            return read_bytes(self.log / name, self.folder, most=LOG_BYTES).decode()
        except (OSError, ValueError):
            return None

    def drop_log(self, name: str) -> None:
        """Remove a file of ``log/``."""
        remove(self.log / name, self.folder)

    def add_to_log(self, name: str, text: str) -> None:
        """Add a text to the end of a file of ``log/``."""
        append(self.log / name, text.encode(), self.folder)

    def plan(self) -> dict[str, Any]:
        """The content of ``study.json``."""
        file = self.folder / "study.json"
        try:
            found: dict[str, Any] = json.loads(read_bytes(file, most=PLAN_BYTES))
            if type(found) is not dict:
                raise ValueError("it is not a table")
        except LinkError:
            raise
        except (OSError, ValueError, RecursionError) as error:
            raise ValueError(
                f"cannot read {file}: {shown(error)}; delete it and run `fedalpha study {self.folder}`, which writes "
                "it again"
            ) from None
        check_format(found.get("format", 1), self.folder)
        return found

    def write_plan(self, text: str, plan: dict[str, Any]) -> None:
        """Write ``study.toml`` and ``study.json``; a folder of another study is refused."""
        file = self.folder / "study.json"
        if file.exists() and (name := self.plan()["study"]["name"]) != plan["study"]["name"]:
            raise ValueError(
                f"{self.folder} holds the study {name!r}; choose another folder for {plan['study']['name']!r}"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        self.write_text(self.folder / "study.toml", text)
        self.write_text(
            self.folder / "study.json", json.dumps({"format": FORMAT, **plan}, indent=1, ensure_ascii=False) + "\n"
        )

    def write_rounds(self, cells: Sequence[Cell]) -> None:
        """``rounds.csv``: the numbers of every finished cell, in the order of the plan."""
        columns = [found.name for found in numbers()]
        rows: list[list[Any]] = [["case", "strategy", "seed", "round", *columns, "cell", "coincides_with"]]
        for cell in cells:
            if not self.has(cell):
                continue
            result = self.get(cell.key)
            for i, number in enumerate(result.columns["round"]):
                values = [result.columns[name][i] if name in result.columns else None for name in columns]
                given = ["" if v is None else v for v in values]
                twin = result.about.get("coincides_with", "")
                rows.append([cell.case, cell.strategy, cell.seed, number, *given, cell.key, twin])
        self.write_text(self.folder / "rounds.csv", csv_text(rows))

    def write_clients(self, cells: Sequence[Cell]) -> None:
        """``clients.csv``: the accuracy of each client on its own test part, at the last round that was evaluated."""
        rows: list[list[Any]] = [["case", "strategy", "seed", "round", "client", "accuracy", "cell"]]
        for cell in (cell for cell in cells if self.has(cell)):
            number, accuracies = self.get(cell.key).clients()
            about = [cell.case, cell.strategy, cell.seed, number]
            rows += [[*about, client, f"{accuracy:.6g}", cell.key] for client, accuracy in accuracies.items()]
        if len(rows) > 1:
            self.write_text(self.folder / "clients.csv", csv_text(rows))

    def sweep(self) -> None:
        """Remove the temporary files that a killed process left."""
        for folder in (self.folder, self.cells, self.log):
            sweep(folder, self.folder)

    def strangers(self, cells: Sequence[Cell]) -> int:
        """The number of stored cells that are not among these. They are kept, but are in no table."""
        planned = {cell.key for cell in cells}
        there = {path.stem for path in self._singles()} | self._tables().keys()
        return len(there - planned)


def write_bytes(path: Path, content: bytes, root: Path | None = None) -> None:
    """Write a file atomically; an unchanged file is not written."""
    if own_size(path, root) != len(content) or read_bytes(path, root) != content:
        write_atomically(path, content, root)
