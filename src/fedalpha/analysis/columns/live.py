"""What only a live federation knows: states that nodes have lost, and the users' own metrics."""

from __future__ import annotations

from typing import Any, ClassVar

from fedalpha.analysis.columns.base import COLUMNS, Column, Context


class _Live(Column):
    """A column of a live federation's rows; the rows of a simulation do not have it."""

    key: ClassVar[str]
    stored = False

    def present(self, context: Context) -> bool:
        return context.live is not None and self.key in context.live

    def value(self, context: Context) -> Any:
        return None if context.live is None else context.live[self.key]


@COLUMNS.register
class Fresh(_Live):
    """The clients that started with a new state because their node had lost it."""

    name = key = "fresh"
    order = 320


@COLUMNS.register
class Metrics(_Live):
    """The users' own metrics: of training, of the clients' evaluation, and of the server's."""

    name = key = "metrics"
    order = 330
