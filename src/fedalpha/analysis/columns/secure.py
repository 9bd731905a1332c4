"""What the secure sum of a round cost, and how exact it is. Only runs with ``secure`` have these columns."""

from __future__ import annotations

from fedalpha.analysis.columns.base import COLUMNS, Column, Context


class _Secure(Column):
    optional = True

    def present(self, context: Context) -> bool:
        return context.secure

    def value(self, context: Context) -> float | None:
        told = None if context.outcome is None else context.outcome.secure
        return None if told is None else told[self.name.removeprefix("secure_")]


@COLUMNS.register
class SecureUp(_Secure):
    """The bytes that clients sent in the secure sum, masked vectors among them; also part of ``bytes_up``."""

    name = "secure_bytes_up"
    order = 121
    dtype = "float64"


@COLUMNS.register
class SecureDown(_Secure):
    """The bytes that the server sent in the secure sum; also part of ``bytes_down``."""

    name = "secure_bytes_down"
    order = 122
    dtype = "float64"


@COLUMNS.register
class SecureError(_Secure):
    """The largest difference of a value of the mean from the plain one, because of fixed-point numbers."""

    name = "secure_error"
    order = 123
    dtype = "float64"


@COLUMNS.register
class SecureSeconds(_Secure):
    """The seconds of the secure sum, of all clients and the server together. It is not a result."""

    name = "secure_seconds"
    order = 124
    dtype = "float64"
    stored = False
