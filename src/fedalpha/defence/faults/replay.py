"""Messages that repeat."""

from __future__ import annotations

import dataclasses

from fedalpha.defence.faults.base import FAULTS, Fault, Scene
from fedalpha.update import Report


@FAULTS.register(formula="a report of an earlier round, and its own one twice", examples=("replay(clients=1)",))
class replay(Fault):
    """Messages repeat: each report arrives twice, and once more with the stamp of an earlier round or run."""

    def reports(self, scene: Scene, reports: list[Report]) -> list[Report]:
        repeated = self.acting(scene, [r.id for r in reports])
        old = (scene.seed, scene.round - 1) if scene.round else (scene.seed + 1, 0)
        stale = [dataclasses.replace(r, origin=old) for r in reports if r.id in repeated]
        return [*stale, *reports, *(r for r in reports if r.id in repeated)]
