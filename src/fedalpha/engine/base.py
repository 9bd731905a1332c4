"""Where clients are computed, written as text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from fedalpha.text import Registry, Spelled, whole

if TYPE_CHECKING:
    from fedalpha.data.federations import Federation
    from fedalpha.round import Engine
    from fedalpha.task import Task
    from fedalpha.update import Update


class Place(Spelled, ABC):
    """An engine that is not started yet. ``workers`` is the number of processes, all cores by default."""

    workers: int | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.workers is not None:
            whole(f"{self.text_name}: workers", self.workers, least=1)

    @property
    def serves(self) -> str:
        """What the engine starts that listens on a network, and where; empty if nothing listens."""
        return ""

    @abstractmethod
    def start(self, federation: Federation, task: Task, update: Update, seed: int) -> Engine:
        """The engine that computes the clients of this federation; it is closed when the run ends."""


ENGINES: Registry[Place] = Registry("engine", Place, package=__package__)  # type: ignore[type-abstract]
