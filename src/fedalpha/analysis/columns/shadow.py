"""What other rules would have weighed."""

from __future__ import annotations

from typing import Any

from fedalpha.analysis.columns.base import COLUMNS, Column, Context


@COLUMNS.register
class Shadow(Column):
    """By shadow rule: its weights of the cohort and their distance to alpha, or why they are missing.

    See `fedalpha.round.shadow`.
    """

    name = "shadow"
    order = 600

    def present(self, context: Context) -> bool:
        return context.shadow is not None

    def value(self, context: Context) -> dict[str, Any]:
        return dict(context.shadow or {})
