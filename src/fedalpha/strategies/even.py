"""`even`: any rule, with more weight for slow clients, which deliver less often; for buffered servers."""

from __future__ import annotations

import math

import numpy as np

from fedalpha.strategies.base import STRATEGIES, State, Strategy
from fedalpha.strategies.cohort import Cohort, Need
from fedalpha.strategies.combinator import Combinator, simplex_member
from fedalpha.strategies.memory import recall, remember
from fedalpha.strategies.simplex import Array, normalise


class Even(Combinator, name="even"):
    """alpha_i ∝ alpha_i·(1 + mean staleness of client i); see `even`."""

    looks_at = frozenset[Need]({"staleness"})
    keeps_order = False

    @property
    def ceiling(self) -> float:
        return 1.0

    def init(self, n: int | None = None) -> State:
        return {**super().init(n), "counts": {}, "sums": {}}

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        (alpha,), state = self.all_weights(state, cohort)
        counts = recall(state["counts"], cohort.ids, 0.0) + 1
        sums = recall(state["sums"], cohort.ids, 0.0) + cohort.require("staleness")
        following = {
            **state,
            "counts": remember(state["counts"], cohort.ids, counts),
            "sums": remember(state["sums"], cohort.ids, sums),
        }
        lengths = 1 + sums / counts
        if (lengths == lengths[0]).all() or not np.any(scaled := lengths * alpha):
            return alpha, following
        return normalise(scaled), following

    def possible(self, cohort: Cohort, f: int, width: float = math.inf) -> float:
        """A client that delivers late on purpose gains weight, so the only bound on the weight of liars is 1."""
        return 1.0

    def support(self, n: int, width: float = math.inf) -> int:
        return self.members[0].support(n, width)


@STRATEGIES.register(
    formula="alpha_i ∝ alpha_i·(1 + mean staleness of client i so far)",
    reference="after Ma et al., 2024, 2406.02877 (FedStaleWeight): its abstract, and the authors' afl-bench",
    examples=("even(FedAvg)", "even(FedSoftWorse(T=0.2))"),
)
def even(rule: Strategy | str) -> Even:
    """A rule that favours fast clients less: a client that delivers half as often has twice the weight in a version.

    1 + τ is the number of versions that a client's training takes, so a client that is always in training delivers
    once in 1 + τ versions. The larger weight compensates for this only in part: the weights of a version sum to 1, so
    with a small buffer fast clients keep a part of their advantage. On a synchronous server the weights do not change.

    >>> import fedalpha
    >>> fedalpha.weights("even(FedAvg)", losses=[1, 1], sizes=[1, 1], staleness=[0, 2])
    array([0.25, 0.75])
    """
    return Even(simplex_member("even", rule))


@STRATEGIES.register(
    formula="even(FedAvg(prior=uniform))",
    reference="after Ma et al., 2024, 2406.02877: its abstract, and the authors' afl-bench",
)
def FedStaleWeight() -> Even:
    """The equal mean, with more weight for clients that deliver less often; see `even`.

    The authors' code weighs by the mean staleness of a client's last five updates, without the 1 (afl-bench,
    expected_staleness.py); in that code a client that is never stale has no weight.
    """
    return even("FedAvg(prior=uniform)")
