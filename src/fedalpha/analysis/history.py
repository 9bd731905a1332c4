"""What a run returns: one row per round, and the final model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedalpha.analysis.columns import numbers
from fedalpha.analysis.measures.base import rounds_to
from fedalpha.store.files import read_bytes
from fedalpha.text import nearest, shown

if TYPE_CHECKING:  # torch is needed to read a model, not to hold rows
    from fedalpha.models import Parameters

Row = dict[str, Any]
"""A JSON object: ``round`` r describes the model after r rounds (0 is the initial model)."""


@dataclass(frozen=True, eq=False, repr=False)
class Best:
    """The best model of a run that keeps it, and the row of its round."""

    row: Row
    model: Parameters

    @property
    def round(self) -> int:
        return int(self.row["round"])

    def __repr__(self) -> str:
        return f"Best(round={self.round})"


@dataclass(frozen=True, eq=False, repr=False)
class History:
    """The rows of a run and its last model; ``interrupted`` says that it stopped before its end.

    ``best`` is the best model, if the run keeps it (``Evaluate(keep="best")``).
    """

    rows: list[Row]
    model: Parameters
    interrupted: bool = False
    best: Best | None = None

    def __repr__(self) -> str:
        if not self.rows:
            return "History(no rows)"
        last = self.rows[-1]
        parts = [f"{last['round']} rounds"]
        parts += [f"{name} {last[name]:.4g}" for name in ("accuracy", "loss") if last.get(name) is not None]
        parts += [f"best after round {self.best.round}"] if self.best is not None else []
        parts += [f"stopped: {self.stopped}"] if self.stopped is not None else []
        return f"History({', '.join(parts)}{', interrupted' if self.interrupted else ''})"

    @property
    def stopped(self) -> str | None:
        """Why the run stopped early: the condition, and the data that it looked at; None if it did not."""
        found: str | None = self.rows[-1].get("stopped") if self.rows else None
        return found

    def column(self, name: str) -> NDArray[np.float64]:
        """One number per round; missing ones are NaN. Lists, such as alpha, are in ``rows``."""
        known = dict.fromkeys([found.name for found in numbers()] + [key for row in self.rows for key in row])
        if name not in known:
            raise ValueError(f"unknown column {name!r}; {nearest(name, known)}")
        if any(isinstance(row.get(name), list | dict) for row in self.rows):
            raise ValueError(f"{name!r} is a list in each row; read it as [row[{name!r}] for row in history.rows]")
        return np.array([np.nan if row.get(name) is None else row[name] for row in self.rows], dtype=np.float64)

    @property
    def accuracy(self) -> NDArray[np.float64]:
        return self.column("accuracy")

    @property
    def loss(self) -> NDArray[np.float64]:
        return self.column("loss")

    def rounds_to(self, accuracy: float) -> int | None:
        """R_p: the smallest r such that the model after r rounds has at least this accuracy; None if never."""
        return rounds_to(self.accuracy, accuracy)


def read(folder: str | Path) -> History:
    """The history of a run folder."""
    folder = Path(folder)
    try:
        rows = [_row(line, number, folder) for number, line in enumerate(_lines(folder / "history.jsonl"), 1)]
    except FileNotFoundError:
        raise ValueError(
            f"{folder} is not a run folder: it has no history.jsonl; `fedalpha run --out` writes one"
        ) from None
    kept = _kept_round(rows)
    best = None if kept is None else _load(folder / "best.safetensors")
    return History(
        rows,
        _load(folder / "model.safetensors") or {},
        best=Best(rows[kept], best) if kept is not None and best is not None else None,
    )


def _kept_round(rows: list[Row]) -> int | None:
    """The round of the best model, if the run keeps one."""
    found = rows[-1].get("best_round") if rows else None
    return found if type(found) is int and 0 <= found < len(rows) else None


def _load(model: Path) -> Parameters | None:
    """The model in a file; None if there is none."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        found: Parameters = load(read_bytes(model))
    except FileNotFoundError:
        return None
    except SafetensorError as error:
        raise ValueError(f"{model} is damaged: {shown(error)}; remove it") from None
    return found


def _lines(path: Path) -> list[bytes]:
    return read_bytes(path).splitlines()


def _row(line: bytes, number: int, folder: Path) -> Row:
    try:
        row = json.loads(line)
        if type(row) is dict and type(row["round"]) is int:
            return row
    except (ValueError, KeyError, RecursionError):
        pass
    raise ValueError(
        f"{folder / 'history.jsonl'} is damaged: line {number} is not a row; `fedalpha resume {folder}` writes it "
        "again from the checkpoint"
    )
