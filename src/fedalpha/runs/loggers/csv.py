"""The numbers of a run as a table."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from fedalpha.analysis.columns import columns
from fedalpha.analysis.history import History, Row
from fedalpha.round import ServerState
from fedalpha.runs.callbacks import Callback
from fedalpha.runs.loggers.base import LOGGERS, opened


@LOGGERS.register(name="csv", examples=("csv(rounds.csv)",))
class Csv(Callback):
    """Writes the columns with one number per round to the file ``path``, a line as soon as its round is over.

    A missing number is an empty field. The file of an earlier run is replaced. When a run is resumed, the file is
    written again from the rows that were saved, so it never holds a round twice.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self._file: TextIO | None = None

    def on_start(self, rounds: int) -> None:
        self._names = [column.name for column in columns() if column.dtype and not column.per_client]
        self._file = opened(self.path, "w")
        self._write([self._names])

    def on_resume(self, rows: Sequence[Row]) -> None:
        self._write([self._numbers(row) for row in rows])

    def on_round(self, row: Row, state: ServerState) -> bool | None:
        self._write([self._numbers(row)])
        return None

    def on_end(self, history: History) -> None:
        if self._file is not None:
            self._file.close()

    def _numbers(self, row: Row) -> list[object]:
        return [row.get(name) for name in self._names]

    def _write(self, lines: Sequence[Sequence[object]]) -> None:
        assert self._file is not None
        csv.writer(self._file, lineterminator="\n").writerows(lines)
        self._file.flush()
