"""Dropouts."""

from __future__ import annotations

from fedalpha.defence.faults.base import FAULTS, Fault, Scene
from fedalpha.update import Report


@FAULTS.register(formula="no report, with probability p", examples=("drop(p=0.1)",))
class drop(Fault):
    """Clients drop out: they are asked to train and never deliver."""

    def reports(self, scene: Scene, reports: list[Report]) -> list[Report]:
        gone = self.acting(scene, [r.id for r in reports])
        return [r for r in reports if r.id not in gone]
