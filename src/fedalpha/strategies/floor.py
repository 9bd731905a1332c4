"""`floor`: every client keeps at least the share π of its prior weight."""

from __future__ import annotations

import math
from dataclasses import field

from fedalpha.strategies.arguments import are_numbers
from fedalpha.strategies.base import STRATEGIES, State, Strategy
from fedalpha.strategies.cohort import Cohort
from fedalpha.strategies.combinator import Combinator, parsed
from fedalpha.strategies.simplex import Array, largest


class Floor(Combinator, name="floor"):
    """(1 − π)·alpha_i + π·p_i; see `floor`."""

    pi: float = field(default=0.0, metadata={"always": True})

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        (alpha,), state = self.all_weights(state, cohort)
        return (1 - self.pi) * alpha + self.pi * cohort.prior("size"), state

    def possible(self, cohort: Cohort, f: int, width: float = math.inf) -> float:
        inner = self.members[0].possible(cohort, f, width)
        return (1 - self.pi) * inner + self.pi * largest(cohort.prior("size"), f)

    def support(self, n: int, width: float = math.inf) -> int:
        return n if self.pi > 0 else self.members[0].support(n, width)


@STRATEGIES.register(
    formula="(1 − π)·alpha_i + π·p_i",
    reference="keeps κ_i = alpha_i/p_i ≥ π, which bounds the error term of the paper's corollary",
    examples=("floor(FedWorse, 0.1)", "floor(FedSoftBetter(T=0.2), pi=0.3)"),
)
def floor(rule: Strategy | str, pi: float) -> Floor:
    """Every client keeps at least the share π of its prior weight.

    >>> import fedalpha
    >>> fedalpha.weights("floor(FedWorse, 0.2)", losses=[2, 1], sizes=[1, 1])
    array([0.9, 0.1])
    """
    members = parsed("floor", (rule,), least=1)
    if not are_numbers([pi]) or not 0 <= pi <= 1:
        raise ValueError(f"floor: pi = {pi!r}; give a share in [0, 1]")
    return Floor(members, pi=float(pi))
