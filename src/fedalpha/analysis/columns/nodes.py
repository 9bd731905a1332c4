"""The nodes of a live federation."""

from __future__ import annotations

from fedalpha.analysis.columns.base import COLUMNS, Column, Context


@COLUMNS.register
class Nodes(Column):
    """The node behind each client of the cohort, and behind clients that were refused: its name, or its id as text."""

    name = "nodes"
    order = 71
    stored = False

    def present(self, context: Context) -> bool:
        return context.nodes is not None

    def value(self, context: Context) -> dict[str, str]:
        if context.outcome is None:
            return {}
        named = context.nodes or {}
        ids = {*context.outcome.cohort.ids.tolist(), *(refusal.client for refusal in context.outcome.refusals)}
        return {str(id): named[id] for id in sorted(ids) if id in named}
