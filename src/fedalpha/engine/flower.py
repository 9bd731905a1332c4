"""Flower's simulation runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedalpha.engine.base import ENGINES, Place

if TYPE_CHECKING:
    from fedalpha.data.federations import Federation
    from fedalpha.round import Engine
    from fedalpha.task import Task
    from fedalpha.update import Update


@ENGINES.register(examples=("flower",))
class flower(Place):
    """Each client is a SuperNode of Flower's simulation runtime, so clients are trained one by one."""

    @property
    def serves(self) -> str:
        return "Flower's simulation runs on Ray, which listens on 127.0.0.1, for this machine only"

    def start(self, federation: Federation, task: Task, update: Update, seed: int) -> Engine:
        from fedalpha.engine.backends.flower import Flower

        return Flower(federation, task, update, seed, self.workers, self.device)
