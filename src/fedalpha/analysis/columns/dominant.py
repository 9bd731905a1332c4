"""The client that outweighs all others together."""

from __future__ import annotations

from fedalpha.analysis.columns.base import COLUMNS, Column, Context


@COLUMNS.register
class Dominant(Column):
    """The id of the client with more than half of alpha; None if there is none."""

    name = "dominant"
    order = 220
    stored = False

    def value(self, context: Context) -> int | None:
        return None if context.outcome is None else context.outcome.dominant
