"""The interface of servers."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar

from fedalpha.text import Registry, Spelled


class Server(Spelled, ABC):
    """The *server* plug point: a server that waits for a cohort, or one that combines the first updates.

    A server that `waits` selects a cohort for each round; updates that come after its end are not used. One that
    does not wait keeps clients in training and combines updates as they arrive; see `buffered`.
    """

    waits: ClassVar[bool] = True

    @property
    def first(self) -> int | None:
        """How many updates end a round of a server that waits; None for all that come."""
        return None

    def size(self, version: int) -> int:
        """How many updates make the next version, on a server that does not wait."""
        raise NotImplementedError(f"{self} waits for its cohort")

    def places(self, version: int) -> int:
        """How many clients train at once, on a server that does not wait."""
        raise NotImplementedError(f"{self} waits for its cohort")

    @property
    def rebases(self) -> bool:
        """Whether a stale update is added to the current model; if not, the stale model itself is averaged."""
        return True


SERVERS: Registry[Server] = Registry("server", Server, package=__package__)
