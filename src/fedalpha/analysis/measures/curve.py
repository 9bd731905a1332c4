"""The whole accuracy curve: its mean, and how much it falls."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedalpha.analysis.measures.base import MEASURES, Array, Whole


@MEASURES.register
class MeanAccuracy(Whole):
    """The area under the accuracy curve over its length (trapezoids)."""

    name = "auc"
    order = 10
    heading = "mean accuracy over rounds (%)"
    higher_is_better = True

    def over(self, rounds: NDArray[np.int64], accuracy: Array) -> float:
        return float(np.trapezoid(accuracy, rounds) / (rounds[-1] - rounds[0]))


@MEASURES.register
class Fall(Whole):
    """The accuracy that is lost from one round to the next, on average; a rise counts as 0."""

    name = "fall"
    order = 20
    heading = "mean fall of accuracy per round (points)"

    def over(self, rounds: NDArray[np.int64], accuracy: Array) -> float:
        return float(np.maximum(0, -np.diff(accuracy)).sum() / (rounds[-1] - rounds[0]))
