"""The most central of the clients' models."""

import numpy as np
from torch import Tensor

from fedalpha.combine import COMBINES, Reports
from fedalpha.combine.base import Limit
from fedalpha.combine.robust import Robust, distances
from fedalpha.strategies import Array
from fedalpha.update import Broadcast


@COMBINES.register(formula="w_i with the smallest Σ_j alpha_j·‖w_i − w_j‖")
class medoid(Robust):
    """One client's model: the one that is nearest to all others, weighed by alpha."""

    def aggregate(self, broadcast: Broadcast, reports: Reports, alpha: Array) -> dict[str, Tensor]:
        away = np.sqrt(distances(reports.gram(broadcast))) @ alpha
        return reports.models()[int(np.argmin(away))]

    def breakdown(self, support: int) -> Limit:
        """A model far from more than half of the weight has a larger sum than any model among that half."""
        return Limit(0.5)
