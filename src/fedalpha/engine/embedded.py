"""This machine: this process, or several forked workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedalpha.engine.base import ENGINES, Place

if TYPE_CHECKING:
    from fedalpha.data.federations import Federation
    from fedalpha.round import Engine
    from fedalpha.task import Task
    from fedalpha.update import Update


@ENGINES.register(examples=("embedded", "embedded(workers=2)"))
class embedded(Place):
    """Clients are computed on this machine.

    Cohorts of hundreds of clients with a small dense model are trained many at a time; ``vectorise`` forces or
    forbids it.
    """

    vectorise: bool | None = None

    def start(self, federation: Federation, task: Task, update: Update, seed: int) -> Engine:
        from fedalpha.engine.backends.embedded import Embedded

        return Embedded(federation, task, update, seed, self.workers, self.device, self.vectorise)
