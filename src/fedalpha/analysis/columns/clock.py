"""Simulated time, and how stale the updates were."""

from __future__ import annotations

from fedalpha.analysis.columns.base import COLUMNS, Column, Context


@COLUMNS.register
class Time(Column):
    """The simulated seconds from the start of the run to this model, in runs with a clock."""

    name = "time"
    order = 105
    dtype = "float64"
    heading = "simulated seconds"
    optional = True
    timed = True

    def present(self, context: Context) -> bool:
        return context.time is not None

    def value(self, context: Context) -> float | None:
        return context.time


@COLUMNS.register
class Staleness(Column):
    """The staleness of each update of the cohort, on servers that do not wait."""

    name = "staleness"
    order = 85
    dtype = "int32"
    per_client = True
    optional = True

    def present(self, context: Context) -> bool:
        return context.late

    def value(self, context: Context) -> list[int] | None:
        late = None if context.outcome is None else context.outcome.cohort.staleness
        return None if late is None else [int(versions) for versions in late]
