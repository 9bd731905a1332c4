"""`steady`: any rule, with at least a share of FedAvg's effective clients: bounded noise (docs/theory.md)."""

from __future__ import annotations

import math
from dataclasses import field

from fedalpha.strategies.arguments import number
from fedalpha.strategies.base import HERE, STRATEGIES, State, Strategy
from fedalpha.strategies.cohort import Cohort
from fedalpha.strategies.combinator import Combinator, simplex_member
from fedalpha.strategies.simplex import Array


class Steady(Combinator, name="steady"):
    """p + ε·(alpha − p), n_eff ≥ share·n_eff(p); see `steady`."""

    keeps_order = False

    share: float = field(default=0.5, metadata={"always": True})

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        (alpha,), state = self.all_weights(state, cohort)
        p = cohort.prior("size")
        change = alpha - p
        # ‖p + ε·change‖² = P + 2bε + aε² must not exceed P/share; at ε = 0 it is P.
        a, b, P = _dot(change, change), _dot(p, change), _dot(p, p)
        room = P / self.share - P
        if a + 2 * b <= room:
            return alpha, state
        root = math.sqrt(b * b + a * room)
        epsilon = room / (b + root) if b > 0 else (root - b) / a
        return p + min(1.0, epsilon) * change, state


@STRATEGIES.register(
    formula="p_i + ε·(alpha_i − p_i) with the largest ε ≤ 1 such that n_eff ≥ share·n_eff(p), n_eff = 1/Σ alpha²",
    reference=HERE,
    examples=("steady(FedWorse, 0.5)", "steady(FedSoftBetter(T=0.2), share=0.8)"),
)
def steady(rule: Strategy | str, share: float) -> Steady:
    """Variance-aware weights: follow the rule as long as the effective number of clients is large enough.

    Gradient noise enters the bounds as σ²·Σ alpha_i². With `steady` this term is at most 1/share times FedAvg's;
    with FedWorse it is larger (Σ alpha² = 1).

    >>> import fedalpha
    >>> fedalpha.weights("steady(FedWorse, 0.5)", losses=[2, 1, 1, 1], sizes=[1, 1, 1, 1]).round(4)
    array([0.683 , 0.1057, 0.1057, 0.1057])
    """
    return Steady(simplex_member("steady", rule), number("steady", "share", share, most=1))


def _dot(a: Array, b: Array) -> float:
    return math.fsum((a * b).tolist())
