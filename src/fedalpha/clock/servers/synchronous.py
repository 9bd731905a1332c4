"""The synchronous server, which waits for its cohort."""

from __future__ import annotations

from fedalpha.clock.servers.base import SERVERS, Server


@SERVERS.register(
    formula="a round ends when all clients of the cohort have delivered, or the first ``take`` of them",
    reference="McMahan et al., 2017; over-selection: Bonawitz et al., 2019, 1902.01046",
    examples=("synchronous", "synchronous(take=10)"),
)
class synchronous(Server):
    """Rounds one after the other, each with its own cohort.

    ``take``: a round ends with this many updates, and later ones are not used. Select more clients than that, such
    as ``uniform(count=13)`` with ``take=10``, so that a round does not wait for the slowest (over-selection).
    """

    take: int | None = None

    def __post_init__(self) -> None:
        if self.take is not None and (isinstance(self.take, bool) or not isinstance(self.take, int) or self.take < 1):
            raise ValueError(f"synchronous: take = {self.take!r}; give a number of updates, at least 1")

    @property
    def first(self) -> int | None:
        return self.take
