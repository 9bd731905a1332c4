"""`fade`: any rule, mixed with FedAvg. The share of FedAvg grows to 1, so that no bias is left in the limit.

A `switch` to FedAvg also removes the bias, in one step. docs/theory.md has the statement and its proof.
"""

from __future__ import annotations

from fedalpha.strategies.base import HERE, STRATEGIES, State, Strategy
from fedalpha.strategies.cohort import Cohort
from fedalpha.strategies.combinator import Combinator, parsed
from fedalpha.strategies.decay import checked_rate, decay
from fedalpha.strategies.simplex import Array


class Fade(Combinator, name="fade"):
    """(1 − ε)·p + ε·alpha; see `fade`."""

    c: float = 1.0
    a: float = 1.0
    gamma: float = 1.0

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        (alpha,), state = self.all_weights(state, cohort)
        share = min(1.0, decay(cohort.round, self.c, self.a, self.gamma))
        return (1 - share) * cohort.prior("size") + share * alpha, state


@STRATEGIES.register(
    formula="(1 − ε)·p_i + ε·alpha_i, ε = min(1, c·(round + γ)^−a)",
    reference=HERE,
    examples=("fade(FedWorse)", "fade(FedSoftBetter(T=0.2), c=5.0, a=0.5, gamma=2.0)"),
)
def fade(rule: Strategy | str, *, c: float = 1.0, a: float = 1.0, gamma: float = 1.0) -> Fade:
    """An annealed mix: the rule's share decreases like (round + γ)^−a, and the share of FedAvg grows to 1.

    For any rule and 0 < a ≤ 1 the expected distance to w* is O((t + γ)^−a).

    >>> import fedalpha
    >>> fedalpha.weights("fade(FedWorse, c=2)", losses=[2, 1], sizes=[1, 1], round=3)
    array([0.75, 0.25])
    """
    return Fade(parsed("fade", (rule,), least=1), *checked_rate("fade", c, a, gamma))
