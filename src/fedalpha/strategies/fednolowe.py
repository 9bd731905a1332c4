"""`FedNolowe`: more weight for lower training losses, without a temperature."""

from __future__ import annotations

import numpy as np

from fedalpha.strategies.base import STRATEGIES, State, Traits
from fedalpha.strategies.cohort import Cohort
from fedalpha.strategies.course import Course
from fedalpha.strategies.simplex import Array, normalise, shares


@STRATEGIES.register(
    formula="alpha_i = (1 − ℓ_i/Σℓ)/(K − 1); 1 for a single client",
    reference="Le et al., PLOS ONE, 2025, 10.1371/journal.pone.0322766",
    examples=("FedNolowe", "FedNolowe(loss=before)"),
)
class FedNolowe(Course):
    """Two L1 normalisations: the smaller a client's share of the losses, the larger its weight.

    Checked against the authors' code (dongld-2020/fednolowe): losses are divided by their sum, and 1 minus the result
    is again divided by its sum. The weights are equal if every loss is 0; sizes are not used. The authors' loss is the
    mean over all local epochs of the round, here it is the mean over the last one (the same for one epoch). For a
    single client the authors' code divides 0 by 0; here the client has weight 1.

    >>> import fedalpha
    >>> fedalpha.weights("FedNolowe", losses=[1, 3])
    array([0.75, 0.25])
    """

    @property
    def traits(self) -> Traits:
        return Traits(monotone=-1)

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        losses = self.losses(cohort)
        equal = np.full(len(cohort), 1 / len(cohort))
        return (normalise(1 - shares(losses, equal)) if len(cohort) > 1 else np.ones(1)), state
