"""The client that outweighs all others together."""

from __future__ import annotations

from fedalpha.analysis.columns.base import COLUMNS, Column, Context


@COLUMNS.register
class Dominant(Column):
    """The id of the client with more than half of alpha; rows without such a client lack the column."""

    name = "dominant"
    order = 220
    stored = False

    def present(self, context: Context) -> bool:
        return context.outcome is not None and context.outcome.dominant is not None

    def value(self, context: Context) -> int | None:
        return None if context.outcome is None else context.outcome.dominant
