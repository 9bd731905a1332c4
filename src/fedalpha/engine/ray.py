"""A Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedalpha.engine.base import ENGINES, Place

if TYPE_CHECKING:
    from fedalpha.data.federations import Federation
    from fedalpha.round import Engine
    from fedalpha.task import Task
    from fedalpha.update import Update


@ENGINES.register(examples=("ray", "ray(address='head:6379')"))
class ray(Place):
    """Clients are computed on the Ray cluster at ``address``, or on a local one that is started for the run."""

    vectorise: bool | None = None
    address: str | None = None

    @property
    def serves(self) -> str:
        return "" if self.address else "Ray listens on 127.0.0.1, for this machine only"

    def start(self, federation: Federation, task: Task, update: Update, seed: int) -> Engine:
        from fedalpha.engine.backends.ray import Ray

        return Ray(federation, task, update, seed, self.workers, self.device, self.vectorise, self.address)
