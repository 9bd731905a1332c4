"""How many clients count."""

from fedalpha.analysis.columns import COLUMNS, Column, Context


@COLUMNS.register
class WeighedClients(Column):
    """The number of clients with alpha > 0; None in round 0."""

    name = "weighed_clients"
    dtype = "int64"
    heading = "clients with α > 0"

    def value(self, context: Context) -> int | None:
        return None if context.outcome is None else int((context.outcome.alpha > 0).sum())
