"""What a run watches: its best model so far, and why it stopped early."""

from __future__ import annotations

from fedalpha.analysis.columns.base import COLUMNS, Column, Context


@COLUMNS.register
class BestRound(Column):
    """The round of the best model so far, if the run keeps it."""

    name = "best_round"
    order = 700
    dtype = "int32"
    stored = False

    def present(self, context: Context) -> bool:
        return context.best_round is not None

    def value(self, context: Context) -> int | None:
        return context.best_round


@COLUMNS.register
class Stopped(Column):
    """Why the run stopped after this round: the condition, and the data that it looks at."""

    name = "stopped"
    order = 710

    def present(self, context: Context) -> bool:
        return context.stopped is not None

    def value(self, context: Context) -> str | None:
        return context.stopped
