"""`aligned`: any rule, limited so that the direction of its update stays close to FedAvg's."""

from __future__ import annotations

import math
from dataclasses import field

import numpy as np

from fedalpha.strategies.arguments import number
from fedalpha.strategies.base import STRATEGIES, State, Strategy
from fedalpha.strategies.cohort import Cohort, Need
from fedalpha.strategies.combinator import Combinator, simplex_member
from fedalpha.strategies.simplex import Array

HALVINGS = 50


class Aligned(Combinator, name="aligned"):
    """p + ε·(alpha − p), as far as the updates agree; see `aligned`."""

    looks_at = frozenset[Need]({"gram"})
    keeps_order = False

    cosine: float = field(default=0.9, metadata={"always": True})

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        gram = cohort.require("gram")
        (alpha,), state = self.all_weights(state, cohort)
        p = cohort.prior("size")
        return p + reach(gram, p, alpha - p, self.cosine) * (alpha - p), state


def reach(gram: Array, p: Array, change: Array, cosine: float) -> float:
    """The largest ε ≤ 1 such that Σ (p + ε·change)_i·Δ_i has at least this cosine with Σ p_i·Δ_i.

    The angle grows with ε, because both points lie on one line.

    >>> round(reach(np.eye(2), np.array([0.5, 0.5]), np.array([0.5, -0.5]), math.cos(math.pi / 8)), 6)  # tan(π/8)
    0.414214
    """
    most = float(np.abs(gram).max())
    if most == 0:
        return 1.0
    scaled = gram / most

    def product(a: Array, b: Array) -> float:
        return math.fsum((a[:, None] * scaled * b).ravel().tolist())

    base, cross, moved = product(p, p), product(p, change), product(change, change)

    def agrees(epsilon: float) -> bool:
        inner = base + epsilon * cross
        length = max(0.0, base + 2 * epsilon * cross + epsilon * epsilon * moved)
        return inner >= cosine * math.sqrt(max(0.0, base) * length)

    if agrees(1.0):
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if agrees(middle) else (low, middle)
    return low


@STRATEGIES.register(
    formula="p_i + ε·(alpha_i − p_i) with the largest ε ≤ 1 such that cos(Σ alpha_i·Δ_i, Σ p_i·Δ_i) ≥ cosine",
    reference="this library; docs/atlas.md",
    examples=("aligned(FedSoftWorse(T=0.2), 0.9)", "aligned(FedLean(share=0.5), cosine=0.8)"),
)
def aligned(rule: Strategy | str, cosine: float = 0.9) -> Aligned:
    """Follow a rule as far as the direction of the resulting update agrees with FedAvg's.

    If the updates of clients with large losses point in another direction than those of the others (wrong labels,
    lies), their weight is limited. If they point in the same direction, it is not.

    >>> import fedalpha
    >>> fedalpha.weights("aligned(FedWorse, 0.9)", losses=[2, 1], gram=[[1, 0.9], [0.9, 1]])
    array([1., 0.])
    """
    return Aligned(simplex_member("aligned", rule), number("aligned", "cosine", cosine, most=1))
