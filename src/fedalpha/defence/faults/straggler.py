"""Reports that come late."""

from __future__ import annotations

import dataclasses
from dataclasses import field

from fedalpha.defence.faults.base import FAULTS, Fault, Scene
from fedalpha.update import Report


@FAULTS.register(formula="the report takes ``delay`` seconds", examples=("straggler(p=0.2, delay=60)",))
class straggler(Fault):
    """Clients are late by (simulated) seconds: with a ``deadline`` their reports are refused."""

    delay: float = field(default=60.0, metadata={"always": True})

    @property
    def against_clock(self) -> str:
        return (
            'its delay would take no simulated time; give slow clients by the clock, such as clock="lognormal(sigma=1)"'
        )

    def reports(self, scene: Scene, reports: list[Report]) -> list[Report]:
        late = self.acting(scene, [r.id for r in reports])
        return [dataclasses.replace(r, delay=r.delay + self.delay) if r.id in late else r for r in reports]
