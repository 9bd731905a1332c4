"""`FedPIDAvg`: sizes, the fall of the loss, and the sum of recent losses."""

from __future__ import annotations

import math

import numpy as np

from fedalpha.strategies.arguments import in_mixture
from fedalpha.strategies.base import STRATEGIES, State
from fedalpha.strategies.cohort import Cohort
from fedalpha.strategies.course import Course
from fedalpha.strategies.memory import recall, remember
from fedalpha.strategies.simplex import Array, normalise, shares


@STRATEGIES.register(
    formula="alpha_i = a·p_i + b·d_i/Σd + c·I_i/ΣI, d = previous loss − loss, I = sum of recent losses",
    reference="Mächler et al., 2023, 2304.12117",
    examples=("FedPIDAvg", "FedPIDAvg(a=0.5, b=0.3, c=0.2, memory=2, loss=before)"),
)
class FedPIDAvg(Course):
    """A PID controller's view: proportional to size, to the fall of the loss, and to recent losses.

    I sums the current loss and up to ``memory`` earlier losses of the client. A loss that rose has d = 0 (the
    formula would give a negative share). If no client's loss fell, the share b is given to p.

    Only the abstract of the paper was available (sizes, the drop of the cost, an integral term). Formula, shares, the
    six losses in I and d ≥ 0 are those of the code that Manthe et al. published with their comparison on the paper's
    data (Medical Image Analysis, 2024; MatthisManthe/Benchmark_FeTS2022, with positive_difference as in
    their final runs). Other public implementations have the same three terms and shares, but sum the five
    losses before the current one, and use d with its sign or its absolute value. Two points differ from that code:
    the share b is given to p if no loss fell (in that code the weights then sum to less than 1), and missing losses
    are left out (in that code they count as 1). The paper's Poisson rule selects the clients that train; it is not
    part of the weights.

    >>> rule = FedPIDAvg()
    >>> state = rule.weights(rule.init(2), Cohort(ids=[0, 1], sizes=[1, 1], train=[1.0, 1.0]))[1]
    >>> rule.weights(state, Cohort(ids=[0, 1], sizes=[1, 1], train=[1.0, 0.5]))[0].round(6)
    array([0.282143, 0.717857])
    """

    a: float = 0.45
    b: float = 0.45
    c: float = 0.1
    memory: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        in_mixture("FedPIDAvg", a=self.a, b=self.b, c=self.c)
        if abs(math.fsum((self.a, self.b, self.c)) - 1) > 1e-9:
            raise ValueError(f"FedPIDAvg: a + b + c = {math.fsum((self.a, self.b, self.c))}; give shares that sum to 1")
        if isinstance(self.memory, bool) or not isinstance(self.memory, int) or self.memory < 1:
            raise ValueError(f"FedPIDAvg: memory = {self.memory!r}; give a number of earlier losses, at least 1")

    def init(self, n: int | None = None) -> State:
        return {"recent": []}

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        losses, p = self.losses(cohort), cohort.prior("size")
        earlier = [recall(memory, cohort.ids, math.nan) for memory in state["recent"]]  # the latest first
        last = earlier[0] if earlier else losses
        fall = np.where(np.isnan(last), 0.0, np.maximum(np.nan_to_num(last) - losses, 0.0))
        scale = max(1.0, float(max(losses.max(), *(np.nan_to_num(e).max() for e in earlier), 0.0)))
        recent = losses / scale
        for values in earlier:
            recent = recent + np.nan_to_num(values) / scale
        alpha = normalise(self.a * p + self.b * shares(fall, p) + self.c * shares(recent, p))
        held = [*state["recent"], {}][: self.memory]
        kept = [losses, *earlier][: self.memory]
        return alpha, {"recent": [dict(remember(m, cohort.ids, values)) for m, values in zip(held, kept, strict=True)]}
