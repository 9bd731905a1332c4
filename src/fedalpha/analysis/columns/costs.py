"""What a round cost: local steps, bytes, seconds; and the number of the round."""

from __future__ import annotations

from fedalpha.analysis.columns.base import COLUMNS, Column, Context


@COLUMNS.register
class Round(Column):
    """The number of rounds that led to the model; 0 for the initial one."""

    name = "round"
    order = 0
    dtype = "int32"

    def value(self, context: Context) -> int:
        return context.round


@COLUMNS.register
class Steps(Column):
    """The local steps of all clients."""

    name = "steps"
    order = 100
    dtype = "int64"

    def value(self, context: Context) -> int:
        return 0 if context.outcome is None else context.outcome.steps


@COLUMNS.register
class BytesDown(Column):
    """The bytes that the server sent."""

    name = "bytes_down"
    order = 110
    dtype = "int64"

    def value(self, context: Context) -> int:
        return 0 if context.outcome is None else context.outcome.bytes_down


@COLUMNS.register
class BytesUp(Column):
    """The bytes that the clients sent."""

    name = "bytes_up"
    order = 120
    dtype = "int64"

    def value(self, context: Context) -> int:
        return 0 if context.outcome is None else context.outcome.bytes_up


@COLUMNS.register
class Seconds(Column):
    """How long the round took. It is not a result; it is always the last column."""

    name = "seconds"
    order = 1000
    dtype = "float64"
    stored = False

    def value(self, context: Context) -> float:
        return round(context.seconds, 6)
