"""This machine: this process, or several forked workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedalpha.engine.base import ENGINES, Place
from fedalpha.text import quoted

if TYPE_CHECKING:
    from fedalpha.data.federations import Federation
    from fedalpha.round import Engine
    from fedalpha.task import Task
    from fedalpha.update import Update


@ENGINES.register(examples=("embedded", "embedded(workers=2)", "embedded(updates=mapped)"))
class embedded(Place):
    """Clients are computed on this machine.

    Cohorts of hundreds of clients with a small dense model are trained many at a time; ``vectorise`` forces or
    forbids it. ``updates``: where the models of a cohort lie if the combine rule looks at single ones: in memory, or
    mapped from a file without a name in the folder for temporary files (``TMPDIR``), so that the system may write them
    to disk. The bytes are the same.
    """

    vectorise: bool | None = None
    updates: str = "memory"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.updates not in ("memory", "mapped"):
            raise ValueError(f"embedded: updates = {quoted(self.updates)}; give memory or mapped")

    def start(self, federation: Federation, task: Task, update: Update, seed: int) -> Engine:
        from fedalpha.engine.backends.embedded import Embedded

        return Embedded(
            federation, task, update, seed, self.workers, self.device, self.vectorise, self.updates == "mapped"
        )
