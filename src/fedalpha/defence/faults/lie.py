"""Lies about losses."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import field

import numpy as np

from fedalpha.defence.faults.base import FAULTS, Fault, Ids, Scene
from fedalpha.strategies import Array
from fedalpha.update import Report


@FAULTS.register(
    formula="the loss is said to be ``loss``", examples=("lie(loss=1000000000.0, clients=1)", "lie(loss=0, clients=2)")
)
class lie(Fault):
    """Clients lie about their losses: the Worse family gives all weight to a huge loss, the Better family to 0."""

    loss: float = field(default=1e9, metadata={"always": True})

    def __post_init__(self) -> None:
        super().__post_init__()
        if str(self.loss) == "nan":  # in a text the word names the fault, too
            object.__setattr__(self, "loss", math.nan)
        if isinstance(self.loss, bool) or not isinstance(self.loss, int | float):
            raise ValueError(f"lie: loss = {self.loss}; give a number, or inf or nan")

    def losses(self, scene: Scene, ids: Ids, losses: Array) -> Array:
        liars = self.acting(scene, ids.tolist())
        return np.where(np.isin(ids, liars), float(self.loss), losses)

    def reports(self, scene: Scene, reports: list[Report]) -> list[Report]:
        liars = self.acting(scene, [r.id for r in reports])
        return [
            dataclasses.replace(r, losses=dict.fromkeys(r.losses, float(self.loss))) if r.id in liars else r
            for r in reports
        ]
