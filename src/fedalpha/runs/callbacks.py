"""Callbacks watch a run: progress, files, early stopping."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedalpha.analysis.conditions import Condition
from fedalpha.analysis.conditions import condition as parsed
from fedalpha.analysis.history import History, Row
from fedalpha.round import ServerState


class Callback:
    """Override what you need; the default does nothing."""

    def on_config(self, config: Mapping[str, Any]) -> None:
        """Before `on_start`: the arguments of the run as JSON, as ``config.json`` describes a run of Python."""

    def on_start(self, rounds: int) -> None:
        """Before the initial model is evaluated."""

    def on_resume(self, rows: Sequence[Row]) -> bool | None:
        """After `on_start`, when a run is resumed; ``rows`` are those that were saved. Return True to stop the run."""

    def on_round(self, row: Row, state: ServerState) -> bool | None:
        """After each row (row 0 is the initial model); return True to stop the run."""

    def on_end(self, history: History) -> None:
        """At the end, also after Ctrl-C or an error."""


class StopWhen(Callback):
    """Stop once a condition holds: ``StopWhen("accuracy >= 0.9")``, ``StopWhen(lambda row: row["accuracy"] >= 0.9)``.

    A function is called with each row. It does not hold in a row in which a value that it reads is missing (with
    ``evaluate=5`` the accuracy of most rounds). The column ``accuracy`` is that of the test set: to stop training by
    the validation part, use ``Evaluate(stop=…)``.
    """

    def __init__(self, condition: str | Condition | Callable[[Row], bool]) -> None:
        if not callable(condition):
            condition = parsed(condition)
        self.condition = condition
        self._rows: list[Row] = []

    def on_start(self, rounds: int) -> None:
        self._rows = []

    def on_resume(self, rows: Sequence[Row]) -> bool | None:
        self._rows = list(rows)
        return self._holds()

    def on_round(self, row: Row, state: ServerState) -> bool | None:
        self._rows.append(row)
        return self._holds()

    def _holds(self) -> bool:
        if isinstance(self.condition, Condition):
            return self.condition.holds(self._rows)
        try:
            return bool(self.condition(_Measured(self._rows[-1])))
        except _MissingError:
            return False


class _MissingError(Exception):
    """A condition reads a value that the row does not have."""


class _Measured(dict[str, Any]):
    """A row in which ``row[name]`` raises an error of its own where nothing was measured."""

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if value is None:
            raise _MissingError(name)
        return value
