"""The folder of a study: plain files, each of which appears whole or not at all.

- ``study.toml``: the study as it was last run; ``study.json``: its cells, their keys and labels.
- ``cells/<key>.parquet``: one row per round, and in the file's metadata the cell's configuration, its hash,
  the versions it ran with, why it ended, and which cell it coincides with.
- ``rounds.csv``: the numbers of all cells in one table, made from the cells.
- ``log/``: what is running, times and errors; no result, safe to delete, not worth committing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedalpha.study.cells import Cell

ENDED = {"rounds": "all rounds were run", "stop_at": "stopped: its question was answered"}
DIAGNOSTICS = ("rho", "pi", "Pi", "effective_clients", "heaviest")
"""How a round weighed its clients: see `fedalpha.theory.diagnostics`."""
NUMBERS = (
    "accuracy",
    "loss",
    "worst_client_accuracy",
    "client_accuracy_spread",
    "steps",
    "bytes_down",
    "bytes_up",
    *DIAGNOSTICS,
)
_WHOLE = {"steps", "bytes_down", "bytes_up"}
LISTS = ("cohort", "alpha", "loss_before", "loss_train", "loss_after")
"""Per-client columns: aligned with ``cohort``; single precision, which is enough for pictures."""


@dataclass(frozen=True, eq=False)
class Result:
    """A finished cell: ``columns`` by name, and what its file says about it."""

    key: str
    columns: dict[str, list[Any]]
    about: dict[str, Any]

    @property
    def stopped(self) -> bool:
        """Whether it ended early because its question was answered."""
        return bool(self.about["ended"] == "stop_at")

    @property
    def last(self) -> int:
        return int(self.columns["round"][-1])


class Store:
    """Reads and writes a study's folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.cells = self.folder / "cells"
        self.log = self.folder / "log"

    def path(self, key: str) -> Path:
        return self.cells / f"{key}.parquet"

    def has(self, cell: Cell) -> bool:
        return self.path(cell.key).exists()

    def put(self, cell: Cell, columns: dict[str, list[Any]], about: dict[str, Any]) -> None:
        """Store a finished cell."""
        pyarrow, parquet = _arrow()
        kinds = {"round": pyarrow.int32(), **dict.fromkeys(NUMBERS, pyarrow.float64())}
        kinds |= dict.fromkeys(_WHOLE, pyarrow.int64())
        kinds |= {name: pyarrow.list_(pyarrow.float32()) for name in LISTS} | {"cohort": pyarrow.list_(pyarrow.int32())}
        rows = len(columns["round"])
        # Nothing that is not in the key: a case may be renamed, a strategy written in another way.
        names: dict[str, Any] = {
            "cell": pyarrow.array([cell.key] * rows),
            "strategy": pyarrow.array([cell.settings.strategy] * rows),
            "seed": pyarrow.array([cell.seed] * rows, pyarrow.int64()),
        }
        names |= {name: pyarrow.array(columns[name], kinds[name]) for name in kinds if name in columns}
        about = {**about, "config": cell.config, "hash": cell.key}
        metadata = {"fedalpha": json.dumps(about, sort_keys=True, ensure_ascii=False)}
        table = pyarrow.table(names).replace_schema_metadata(metadata)
        self.cells.mkdir(parents=True, exist_ok=True)
        # The place of a draft is unique to the process, so that two writers cannot mix their bytes.
        draft = self.cells / f".{cell.key}.{os.getpid()}.draft"
        parquet.write_table(table, draft, compression="zstd")
        _install(draft, self.path(cell.key))

    def get(self, key: str) -> Result:
        """A finished cell."""
        pyarrow, parquet = _arrow()
        path = self.path(key)
        try:
            table = parquet.read_table(path, partitioning=None)
            about = json.loads(table.schema.metadata[b"fedalpha"])
        except (OSError, KeyError, TypeError, pyarrow.ArrowException) as error:
            raise ValueError(f"cannot read the cell {path}: {error}; delete it to have it run again") from None
        if about.get("hash") != key:
            raise ValueError(f"{path} holds another cell ({about.get('hash')}); delete it to have its own run again")
        columns = {name: table[name].to_pylist() for name in ("round", *NUMBERS, *LISTS) if name in table.column_names}
        return Result(key, columns, about)

    def plan(self) -> dict[str, Any]:
        """What ``study.json`` holds."""
        file = self.folder / "study.json"
        try:
            found: dict[str, Any] = json.loads(file.read_text())
        except (OSError, ValueError) as error:
            raise ValueError(
                f"cannot read {file}: {error}; delete it and run `fedalpha study {self.folder}`, which writes it anew"
            ) from None
        return found

    def write_plan(self, text: str, plan: dict[str, Any]) -> None:
        """``study.toml`` and ``study.json``; a folder that holds another study is refused."""
        file = self.folder / "study.json"
        if file.exists() and (name := self.plan()["study"]["name"]) != plan["study"]["name"]:
            raise ValueError(
                f"{self.folder} holds the study {name!r}; choose another folder for {plan['study']['name']!r}"
            )
        write_text(self.folder / "study.toml", text)
        write_text(self.folder / "study.json", json.dumps(plan, indent=1, ensure_ascii=False) + "\n")

    def write_rounds(self, cells: Sequence[Cell]) -> None:
        """``rounds.csv``: the numbers of every finished cell, in the order of the plan."""
        import csv
        import io

        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["case", "strategy", "seed", "round", *NUMBERS, "cell", "coincides_with"])
        for cell in cells:
            if not self.has(cell):
                continue
            result = self.get(cell.key)
            for i, number in enumerate(result.columns["round"]):
                values = [result.columns[name][i] if name in result.columns else None for name in NUMBERS]
                shown = ["" if v is None else v for v in values]
                twin = result.about.get("coincides_with", "")
                writer.writerow([cell.case, cell.strategy, cell.seed, number, *shown, cell.key, twin])
        write_text(self.folder / "rounds.csv", out.getvalue())

    def sweep(self) -> None:
        """Remove drafts that a killed process left."""
        for draft in self.cells.glob(".*.draft"):
            draft.unlink(missing_ok=True)

    def strangers(self, cells: Sequence[Cell]) -> int:
        """How many stored cells belong to none of these: they are kept, but no table shows them."""
        planned = {cell.key for cell in cells}
        return sum(path.stem not in planned for path in self.cells.glob("*.parquet"))


def write_text(path: Path, text: str) -> None:
    """Write a file so that it is there whole or not at all; an unchanged one is left alone."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """The same for bytes."""
    if path.exists() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    draft.write_bytes(content)
    _install(draft, path)


def _install(draft: Path, path: Path) -> None:
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    draft.replace(path)


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise RuntimeError('studies need pyarrow; install it with: pip install "fedalpha[studies]"') from None
    return pyarrow, parquet
