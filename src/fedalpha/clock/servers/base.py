"""The interface of servers."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar

from fedalpha.text import Registry, Spelled


class Server(Spelled, ABC):
    """The *server* plug point: a server that waits for a cohort, or one that combines the first updates.

    A synchronous server (`waits`) selects a cohort for each round; updates that arrive after the end of the round are
    not used. A buffered server keeps clients in training and combines updates as they arrive; see `buffered`.
    """

    waits: ClassVar[bool] = True

    @property
    def first(self) -> int | None:
        """The number of updates that end a round of a synchronous server; None for all that arrive."""
        return None

    def size(self, version: int) -> int:
        """The number of updates that make the next version, on a buffered server."""
        raise NotImplementedError(f"{self} waits for its cohort")

    def places(self, version: int) -> int:
        """The number of clients that train at the same time, on a buffered server."""
        raise NotImplementedError(f"{self} waits for its cohort")

    @property
    def rebases(self) -> bool:
        """Whether a stale update is added to the current model; if not, the stale model itself is averaged."""
        return True


SERVERS: Registry[Server] = Registry("server", Server, package=__package__)
