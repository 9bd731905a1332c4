"""`per_step`: any rule, corrected for clients that did unequal local work (docs/theory.md)."""

from __future__ import annotations

import numpy as np

from fedalpha.strategies.base import HERE, STRATEGIES, State, Strategy
from fedalpha.strategies.cohort import Cohort, Need
from fedalpha.strategies.combinator import Combinator, simplex_member
from fedalpha.strategies.simplex import Array, normalise


class PerStep(Combinator, name="per_step"):
    """∝ alpha_i/E_i; see `per_step`."""

    looks_at = frozenset[Need]({"steps"})
    keeps_order = False

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        (alpha,), state = self.all_weights(state, cohort)
        steps = cohort.require("steps")
        rate = np.divide(alpha, steps, out=np.zeros(len(cohort)), where=(steps > 0) & (alpha > 0))
        return (normalise(rate) if rate.any() else alpha), state


@STRATEGIES.register(
    formula="∝ alpha_i/E_i, E_i the client's local steps",
    reference=HERE,
    examples=("per_step(FedAvg)", "per_step(FedSoftWorse(T=0.2))"),
)
def per_step(rule: Strategy | str) -> PerStep:
    """Weights for unequal local work: each weight is divided by the number E_i of local steps.

    A client that takes E_i steps has E_i times the effect. After the division the effective weights are those of the
    rule: `per_step(FedAvg)` stays unbiased. A client that took no step has no update and has weight 0.

    >>> import fedalpha
    >>> fedalpha.weights("per_step(FedAvg)", losses=[1, 1], sizes=[1, 1], steps=[1, 3])
    array([0.75, 0.25])
    """
    return PerStep(simplex_member("per_step", rule))
