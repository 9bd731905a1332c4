"""A column of the history at one round: ``accuracy``, ``accuracy@20``."""

from __future__ import annotations

import math

from fedalpha.analysis.columns import Column, numbers
from fedalpha.analysis.measures.base import MEASURES, Curve, Measure, Measured


@MEASURES.register
class Point(Measure):
    """The value of a column after ``at`` rounds, by default after all of them."""

    name = "point"
    order = 0

    def __init__(self, column: Column, at: int | None = None) -> None:
        self.column, self.at = column, at
        self.text = column.name if at is None else f"{column.name}@{at}"
        self.heading = column.heading + (", final round" if at is None else f", round {at}")
        self.scale, self.digits, self.praise = column.scale, column.digits, column.praise
        self.higher_is_better = column.better == "higher"

    @classmethod
    def read(cls, text: str) -> Measure | None:
        name, sign, at = text.partition("@")
        column = next((found for found in numbers() if found.name == name and found.better), None)
        if column is None or (sign and not at.isdecimal()):
            return None
        return cls(column, int(at) if sign else None)

    @classmethod
    def examples(cls) -> list[str]:
        names = [found.name for found in numbers() if found.better]
        return names + [f"{name}@20" for name in names]

    def of(self, run: Curve) -> Measured | None:
        at = run.rounds if self.at is None else self.at
        values = run.columns.get(self.column.name)
        if values is None or at > run.last or math.isnan(values[at]):
            return None
        return Measured(float(values[at]))
