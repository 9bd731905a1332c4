"""How good a run is once it has settled."""

import numpy as np
from numpy.typing import NDArray

from fedalpha.analysis.measures import MEASURES, Whole


@MEASURES.register
class LateAccuracy(Whole):
    """The mean accuracy over the second half of the rounds."""

    name = "late_accuracy"
    heading = "mean accuracy, second half (%)"
    higher_is_better = True

    def over(self, rounds: NDArray[np.int64], accuracy: NDArray[np.float64]) -> float:
        return float(accuracy[rounds >= rounds[-1] / 2].mean())
