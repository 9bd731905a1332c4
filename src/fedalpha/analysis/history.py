"""What a run returns: one row per round, and the final model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedalpha.analysis.measures.base import rounds_to
from fedalpha.store.files import read_bytes
from fedalpha.text import shown

if TYPE_CHECKING:  # torch is needed to read a model, not to hold rows
    from fedalpha.models import Parameters

Row = dict[str, Any]
"""A JSON object: ``round`` r describes the model after r rounds (0 is the initial model)."""


@dataclass(frozen=True, eq=False)
class History:
    """The rows of a run and its last model; ``interrupted`` says that it stopped before its end."""

    rows: list[Row]
    model: Parameters
    interrupted: bool = False

    def column(self, name: str) -> NDArray[np.float64]:
        """One number per round; missing ones are NaN. Lists, such as alpha, are in ``rows``."""
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
    from safetensors import SafetensorError
    from safetensors.torch import load

    folder = Path(folder)
    try:
        rows = [_row(line, number, folder) for number, line in enumerate(_lines(folder / "history.jsonl"), 1)]
    except FileNotFoundError:
        raise ValueError(
            f"{folder} is not a run folder: it has no history.jsonl; `fedalpha run --out` writes one"
        ) from None
    model = folder / "model.safetensors"
    try:
        return History(rows, load(read_bytes(model)))
    except FileNotFoundError:
        return History(rows, {})
    except SafetensorError as error:
        raise ValueError(f"{model} is damaged: {shown(error)}; remove it") from None


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
