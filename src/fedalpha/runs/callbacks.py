"""Callbacks watch a run: progress, files, early stopping."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedalpha.analysis.history import History, Row
from fedalpha.round import ServerState


class Callback:
    """Override what you need; the default does nothing."""

    def on_start(self, rounds: int) -> None:
        """Before the initial model is evaluated."""

    def on_resume(self, rows: Sequence[Row]) -> None:
        """After `on_start`, when a run is resumed; ``rows`` are those that were saved."""

    def on_round(self, row: Row, state: ServerState) -> bool | None:
        """After each row (row 0 is the initial model); return True to stop the run."""

    def on_end(self, history: History) -> None:
        """At the end, also after Ctrl-C or an error."""


@dataclass(frozen=True)
class StopWhen(Callback):
    """Stop once a condition on the row holds: ``StopWhen(lambda row: row["accuracy"] >= 0.9)``."""

    condition: Callable[[Row], bool]

    def on_round(self, row: Row, state: ServerState) -> bool | None:
        return self.condition(row)
