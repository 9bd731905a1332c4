"""Measures against simulated time, for runs with a clock: seconds to an accuracy, and values at a time.

``T_60`` is to ``R_60`` what seconds are to rounds; ``accuracy@100s``, ``auc@100s`` and ``fall@100s`` are
``accuracy@20``, ``auc`` and ``fall`` with seconds in place of rounds. At any time the last model counts.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from typing import ClassVar

import numpy as np

from fedalpha.analysis.columns import Column, numbers
from fedalpha.analysis.measures.base import MEASURES, Array, Curve, Measure, Measured, Until

_TIME = re.compile(r"(\w+)@(\d+(?:\.\d+)?)s")


@MEASURES.register
class Seconds(Until):
    """T_p: the simulated seconds until a model with at least p % test accuracy is there."""

    name = "T"
    order = 35
    heading = "T_{} (simulated s)"
    unit = "simulated seconds"
    timed = True

    def spent(self, run: Curve, end: int) -> float:
        return float(run.columns["time"][end])

    def of(self, run: Curve) -> Measured | None:
        return super().of(run) if "time" in run.columns and not np.isnan(run.columns["time"]).all() else None


class AtTime(Measure):
    """What a run has reached after so many simulated seconds; its text is ``what@SECONDSs``."""

    timed: ClassVar[bool] = True
    seconds: float

    def __init__(self, what: str, seconds: float, heading: str) -> None:
        self.seconds = seconds
        self.text = f"{what}@{seconds:g}s"
        self.heading = f"{heading}, {seconds:g} simulated s"
        if not seconds > 0:
            raise ValueError(f"measure {self.text!r}: give a time > 0")

    def end(self, run: Curve) -> int | None:
        """The last model that was there in time; None if the run ended before."""
        times = run.columns.get("time")
        if times is None or not times[-1] >= self.seconds:
            return None
        return int(np.flatnonzero(times <= self.seconds)[-1])

    def of(self, run: Curve) -> Measured | None:
        end = self.end(run)
        value = None if end is None else self.until(run, end)
        return None if value is None or math.isnan(value) else Measured(value)

    @abstractmethod
    def until(self, run: Curve, end: int) -> float | None:
        """The value, if model ``end`` is the last one in time."""


@MEASURES.register
class PointInTime(AtTime):
    """The value of a column at a time."""

    name = "point_in_time"
    order = 5

    def __init__(self, column: Column, seconds: float) -> None:
        super().__init__(column.name, seconds, column.heading)
        self.column = column
        self.scale, self.digits, self.praise = column.scale, column.digits, column.praise
        self.higher_is_better = column.better == "higher"

    @classmethod
    def read(cls, text: str) -> Measure | None:
        if (match := _TIME.fullmatch(text)) is None:
            return None
        column = next((found for found in numbers() if found.name == match[1] and found.better), None)
        return None if column is None else cls(column, float(match[2]))

    @classmethod
    def examples(cls) -> list[str]:
        return ["accuracy@100s"]

    def until(self, run: Curve, end: int) -> float | None:
        values = run.columns.get(self.column.name)
        return None if values is None else float(values[end])


class _OverTime(AtTime):
    """A measure of the accuracy as a function of time: each model counts until the next one is there."""

    scale = 100.0

    def __init__(self, seconds: float) -> None:
        super().__init__(self.name.removesuffix("_over_time"), seconds, self.heading)

    @classmethod
    def read(cls, text: str) -> Measure | None:
        match = _TIME.fullmatch(text)
        return cls(float(match[2])) if match and f"{match[1]}_over_time" == cls.name else None

    @classmethod
    def examples(cls) -> list[str]:
        return [f"{cls.name.removesuffix('_over_time')}@100s"]

    def until(self, run: Curve, end: int) -> float | None:
        drawn = np.flatnonzero(~np.isnan(run.columns["accuracy"][: end + 1]))
        return self.over(run.columns["time"][drawn], run.columns["accuracy"][drawn])

    @abstractmethod
    def over(self, times: Array, accuracy: Array) -> float:
        """The value, from the times of the models that were evaluated and their accuracies."""


@MEASURES.register
class MeanAccuracyOverTime(_OverTime):
    """The accuracy of the model that is there, averaged over the time."""

    name = "auc_over_time"
    order = 15
    heading = "mean accuracy over time (%)"
    higher_is_better = True

    def over(self, times: Array, accuracy: Array) -> float:
        lasts = np.diff([*times, self.seconds])
        return float((accuracy * lasts).sum() / self.seconds)


@MEASURES.register
class FallOverTime(_OverTime):
    """The accuracy that is lost from one model to the next, per simulated second; a rise counts as 0."""

    name = "fall_over_time"
    order = 25
    heading = "mean fall of accuracy per simulated second (points)"

    def over(self, times: Array, accuracy: Array) -> float:
        return float(np.maximum(0, -np.diff(accuracy)).sum() / self.seconds)
