"""Weights by the order of the losses, not by their size."""

import math

import numpy as np

from fedalpha.strategies import STRATEGIES, Array, Cohort, Need, State, Strategy, Traits


@STRATEGIES.register(formula="alpha_i ∝ rank of F_i(w_t) (1 for the smallest loss)")
class ByRank(Strategy):
    """The client with the largest of n losses weighs n times as much as the one with the smallest."""

    @property
    def traits(self) -> Traits:  # promises that the contract suite checks
        return Traits(shift_invariant=True, monotone=1)

    @property
    def requires(self) -> frozenset[Need]:  # what `weights` looks at besides the sizes
        return frozenset({"before"})

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        _, place, counts = np.unique(cohort.require("before"), return_inverse=True, return_counts=True)
        ranks = np.cumsum(counts) - (counts - 1) / 2  # equal losses share the mean of their ranks
        return ranks[place] / ranks[place].sum(), state

    def possible(self, cohort: Cohort, f: int, width: float = math.inf) -> float:
        """Liars can at most take the f highest ranks."""
        n = len(cohort)
        f = min(f, n)
        return f * (2 * n - f + 1) / (n * (n + 1))

    def support(self, n: int, width: float = math.inf) -> int:
        """Everybody weighs more than 0."""
        return n
