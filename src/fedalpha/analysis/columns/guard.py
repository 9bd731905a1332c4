"""What the gate refused, why a model was kept, and the influence of liars."""

from __future__ import annotations

from typing import Any

from fedalpha.analysis.columns.base import COLUMNS, Column, Context


@COLUMNS.register
class Refused(Column):
    """The refusals: client and reason."""

    name = "refused"
    order = 130

    def value(self, context: Context) -> list[dict[str, Any]]:
        refusals = () if context.outcome is None else context.outcome.refusals
        return [{"client": refusal.client, "reason": refusal.reason} for refusal in refusals]


@COLUMNS.register
class Idle(Column):
    """The clients that returned the model unchanged."""

    name = "idle"
    order = 140

    def value(self, context: Context) -> list[int]:
        return [] if context.outcome is None else list(context.outcome.idle)


@COLUMNS.register
class Kept(Column):
    """Why the model was kept; None if it was not."""

    name = "kept"
    order = 150

    def value(self, context: Context) -> str | None:
        return None if context.outcome is None else context.outcome.kept


@COLUMNS.register
class Influence(Column):
    """The influence of any ``clients`` clients: see `fedalpha.defence.tolerance.Influence`."""

    name = "influence"
    order = 160

    def value(self, context: Context) -> dict[str, float | None] | None:
        return None if context.influence is None else dict(context.influence)
