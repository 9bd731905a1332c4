"""What the loggers of experiment trackers share: what they write of a row, and when."""

from __future__ import annotations

import tempfile
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedalpha.analysis.history import History, Row
from fedalpha.round import ServerState
from fedalpha.runs.callbacks import Callback


class Tracker(Callback):
    """Writes configuration, numbers, per-client values, and at the end the curves, the rows and the model.

    A resumed run is written again from its saved rows, so no round is missing and none is repeated.
    """

    _config: Mapping[str, Any] = {}
    _open = False

    def on_config(self, config: Mapping[str, Any]) -> None:
        self._config = config

    def on_start(self, rounds: int) -> None:
        self._begin({**self._config, "rounds": rounds})
        self._open = True

    def on_resume(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._write(row["round"], scalars(row), per_client(row))

    def on_round(self, row: Row, state: ServerState) -> bool | None:
        self._write(row["round"], scalars(row), per_client(row))
        return None

    def on_end(self, history: History) -> None:
        if self._open:
            self._open = False
            self._finish(history)

    @abstractmethod
    def _begin(self, config: Mapping[str, Any]) -> None:
        """Open a new record of the run."""

    @abstractmethod
    def _write(self, round: int, numbers: Mapping[str, float], clients: Mapping[str, NDArray[np.float64]]) -> None:
        """Write a row: its numbers, and its values by client."""

    @abstractmethod
    def _finish(self, history: History) -> None:
        """Write what belongs to the whole run, and close the record."""


def scalars(row: Row) -> dict[str, float]:
    """The numbers of a row; missing ones are left out."""
    return {
        name: value
        for name, value in row.items()
        if name != "round" and isinstance(value, int | float) and not isinstance(value, bool)
    }


def per_client(row: Row) -> dict[str, NDArray[np.float64]]:
    """The values by client of a row: α, and the losses of each kind; clients without a value are left out.

    >>> per_client({"alpha": [0.5, 0.5], "losses": {"before": [1.0, None]}})
    {'alpha': array([0.5, 0.5]), 'loss_before': array([1.])}
    """
    found = {"alpha": row.get("alpha")}
    found |= {f"loss_{kind}": values for kind, values in (row.get("losses") or {}).items()}
    found["client_accuracy"] = row.get("client_accuracy")
    known = {name: [v for v in values if v is not None] for name, values in found.items() if values}
    return {name: np.array(values, dtype=np.float64) for name, values in known.items() if values}


def needed(module: str, logger: str, extra: str) -> Any:
    """The module that a logger needs; the error says how to install it, before anything is trained."""
    try:
        return import_module(module)
    except ImportError:
        raise ValueError(
            f'the logger {logger} needs {module}; install it with: pip install "fedalpha[{extra}]"'
        ) from None


@contextmanager
def files(history: History) -> Iterator[Path]:
    """A temporary folder with the rows and the models of a run."""
    with tempfile.TemporaryDirectory() as folder:
        yield history.save(folder)
