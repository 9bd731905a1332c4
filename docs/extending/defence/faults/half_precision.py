"""Uploads that lose digits."""

import dataclasses

from fedalpha.defence.faults import FAULTS, Fault, Scene
from fedalpha.update import Report


@FAULTS.register(formula="w_i → w_i in float16", examples=("half_precision(clients=2)",))
class half_precision(Fault):
    """Models arrive rounded to half precision. ``clients`` and ``p`` say whose and how often, as for every fault."""

    def reports(self, scene: Scene, reports: list[Report]) -> list[Report]:
        acting = self.acting(scene, [report.id for report in reports])
        return [self._rounded(report) if report.id in acting else report for report in reports]

    def _rounded(self, report: Report) -> Report:
        assert report.parameters is not None
        rounded = {k: v.half().to(v.dtype) if v.is_floating_point() else v for k, v in report.parameters.items()}
        return dataclasses.replace(report, parameters=rounded)
