"""The columns of a history: one class each, read by rows, stored cells, conditions, measures and reports.

A new column is one new file here (or a user's plugin) with a class like this; its column comes after the
others, before ``seconds``::

    @COLUMNS.register
    class WeighedClients(Column):
        name = "weighed_clients"
        dtype = "int64"
        heading = "clients with α > 0"

        def value(self, context: Context) -> int | None:
            return None if context.outcome is None else int((context.outcome.alpha > 0).sum())

NumPy is all that is needed, so that a Flower server writes the same rows.
"""

from fedalpha.analysis.columns.base import (
    COLUMNS,
    Column,
    Context,
    PerClient,
    check_numbers,
    column,
    columns,
    finite,
    numbers,
    row,
    stored,
)

__all__ = [
    "COLUMNS",
    "Column",
    "Context",
    "PerClient",
    "check_numbers",
    "column",
    "columns",
    "finite",
    "numbers",
    "row",
    "stored",
]
