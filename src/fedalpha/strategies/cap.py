"""`cap`: no weight exceeds c (water-filling)."""

from __future__ import annotations

import math
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from fedalpha.strategies.arguments import are_numbers
from fedalpha.strategies.base import STRATEGIES, State, Strategy, TooFewError, entangled
from fedalpha.strategies.cohort import Cohort
from fedalpha.strategies.combinator import Combinator, parsed
from fedalpha.strategies.simplex import Array, fill, normalise
from fedalpha.strategies.soft import TINY


class Cap(Combinator, name="cap"):
    """alpha_i = min(c, λ·a_i); see `cap`."""

    c: float = field(default=1.0, metadata={"always": True})

    @property
    def ceiling(self) -> float:
        return min(self.c, self.members[0].ceiling)

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        n = len(cohort)
        if self.c * n < 1 - 1e-12:
            raise TooFewError(f"cap: c = {self.c} is below 1/n: {n} clients cannot carry all of the weight; raise c")
        (a,), following = self.all_weights(state, cohort)
        c = max(self.c, 1 / n)  # c = 0.333333333333 is meant as 1/3
        alpha = np.zeros(n)
        while (left := 1 - math.fsum(alpha.tolist())) > 1e-15 * n and not alpha.all():
            alpha = alpha + fill(self._shares(state, cohort, a, alpha == 0), c, left)
        capped: Array = np.minimum(normalise(np.maximum(alpha, np.minimum(a, TINY))), c)
        return capped, following

    def _shares(self, state: State, cohort: Cohort, a: Array, some: NDArray[np.bool_]) -> Array:
        """The proportions among ``some`` clients: those of the rule, else their prior, else equal."""
        inner = self.members[0].among(state["members"][0], cohort, some)
        for shares in (a if inner is None else inner, cohort.prior("size")):
            if shares[some].any():
                return np.where(some, shares, 0.0)
        return some.astype(np.float64)

    def possible(self, cohort: Cohort, f: int, width: float = math.inf) -> float:
        return min(1.0, f * self.c)  # liars may get weight that is cut off from others, so only the cap bounds them

    def support(self, n: int, width: float = math.inf) -> int:
        return max(self.members[0].support(n, width), min(n, math.ceil(1 / self.c - 1e-9)))

    def sensitivity(self, C: float) -> float:
        """2·c·C: c·C for the client's own part, c·C for what the others gain. The inner rule must be `separable`."""
        if not self.members[0].separable:
            raise entangled(self.members[0])
        return 2 * self.c * C


@STRATEGIES.register(
    formula="min(c, λ·alpha_i) with λ so that the sum is 1 (water-filling)",
    reference="bounds the influence of each client; see docs/reliability.md",
    examples=("cap(FedSoftWorse(T=0.2), 0.5)", "cap(FedWorse(k=2), c=0.7)"),
)
def cap(rule: Strategy | str, c: float) -> Cap:
    """No weight exceeds c.

    alpha_i = min(c, λ·a_i), where a are the weights of the rule. This also holds if the a_i
    of a soft rule are too small for float64. Weight that the clients with a_i > 0 cannot carry is given to the other
    clients in proportion to their prior, also capped. If c < 1/n, there is no solution and ValueError is raised.

    >>> import fedalpha
    >>> fedalpha.weights("cap(FedWorse, 0.5)", losses=[3, 2, 1], sizes=[1, 3, 1])
    array([0.5  , 0.375, 0.125])
    """
    members = parsed("cap", (rule,), least=1)
    if not members[0].traits.simplex:
        raise ValueError(f"cap: {members[0]} is off the simplex and cannot be capped; cap a rule on it, such as FedAvg")
    if not are_numbers([c]) or not 0 < c <= 1:
        raise ValueError(f"cap: c = {c!r}; give the largest weight allowed, in (0, 1]")
    return Cap(members, c=float(c))
