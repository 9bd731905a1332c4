"""`FedAWA`: weights that adapt to how well each client's update agrees with the others."""

from __future__ import annotations

import math

import numpy as np

from fedalpha.strategies.arguments import positive
from fedalpha.strategies.base import STRATEGIES, State, Strategy, Traits
from fedalpha.strategies.cohort import Cohort, Need
from fedalpha.strategies.memory import recall, remember
from fedalpha.strategies.simplex import Array, normalise


@STRATEGIES.register(
    formula="alpha = softmax(T); T moves by Adam along −∇[Σ alpha_i·(1 − cos(w_i, w_t)) + Σ alpha_i·‖Δ_i − Σ alpha·Δ‖]",
    reference="Shi et al., 2025, 2503.15842",
    examples=("FedAWA(lr=0.1, epochs=2)",),
)
class FedAWA(Strategy):
    """Adaptive weights by client vectors: clients whose update Δ_i is close to the mean gain weight over the rounds.

    The logits T start at the shares p_i (so that alpha starts near uniform) and are kept from round to round; each
    round takes ``epochs`` steps of Adam (betas 0.5 and 0.999, with a new state) at the rate ``lr``. As in the authors'
    code, alpha comes from the logits before the last of these steps. The logits of idle clients do not change.

    Checked against the authors' code (ChanglongShi/FedAWA) with all clients in every round. With partial
    participation, that code keeps logits by a client's place in the cohort; here they belong to the client.

    >>> rule = FedAWA(lr=0.5)
    >>> cohort = Cohort(ids=[0, 1], sizes=[1, 1], gram=[[1.0, 0.0], [0.0, 4.0]], cosines=[1.0, 0.5])
    >>> first, state = rule.weights(rule.init(2), cohort)
    >>> first, rule.weights(state, cohort)[0].round(4)
    (array([0.5, 0.5]), array([0.7311, 0.2689]))
    """

    lr: float = 0.001
    epochs: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "lr", positive("FedAWA", "lr", self.lr))
        if isinstance(self.epochs, bool) or not isinstance(self.epochs, int) or self.epochs < 1:
            raise ValueError(f"FedAWA: epochs = {self.epochs!r}; give a number of steps, at least 1")

    @property
    def traits(self) -> Traits:
        return Traits(shift_invariant=True, monotone=0)

    @property
    def requires(self) -> frozenset[Need]:
        return frozenset({"gram", "cosines"})

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        gram, cosines = cohort.require("gram"), cohort.require("cosines")
        known = recall(state, cohort.ids, math.nan)
        logits = np.where(np.isnan(known), cohort.prior("size"), known)
        first, second = np.zeros(len(cohort)), np.zeros(len(cohort))
        for k in range(1, self.epochs + 1):
            alpha = normalise(np.exp(logits - logits.max()))
            slope = alignment_slope(gram, cosines, alpha)
            first = 0.5 * first + 0.5 * slope
            second = 0.999 * second + 0.001 * slope * slope
            move = first / (1 - 0.5**k) / (np.sqrt(second / (1 - 0.999**k)) + 1e-8)
            logits = logits - self.lr * move
        return alpha, remember(state, cohort.ids, logits)


def alignment_slope(gram: Array, cosines: Array, alpha: Array) -> Array:
    """The gradient of Σ alpha_i·(1 − cos_i) + Σ alpha_i·‖Δ_i − Σ_j alpha_j·Δ_j‖ in the logits of alpha."""
    common = _times(gram, alpha)  # ⟨Δ_i, Σ alpha·Δ⟩
    square = math.fsum((alpha * common).tolist())
    far = np.sqrt(np.maximum(np.diagonal(gram) - 2 * common + square, 0.0))
    pull = np.divide(alpha, far, out=np.zeros(len(alpha)), where=far > 1e-12 * max(1.0, float(far.max())))
    moved = math.fsum(pull.tolist()) * common - _times(gram, pull)
    slope = (1 - cosines) + far + moved
    return np.asarray(alpha * (slope - math.fsum((alpha * slope).tolist())))


def _times(matrix: Array, vector: Array) -> Array:
    """matrix·vector with exact sums, so that the order of clients does not matter."""
    return np.array([math.fsum(row.tolist()) for row in matrix * vector])
