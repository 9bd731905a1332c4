"""`mix`: a fixed mixture of rules."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedalpha.strategies.arguments import are_numbers
from fedalpha.strategies.base import STRATEGIES, State, Strategy
from fedalpha.strategies.cohort import Cohort
from fedalpha.strategies.combinator import Combinator, parsed
from fedalpha.strategies.simplex import Array


class Mix(Combinator, name="mix"):
    """Σ_j shares_j · alpha_j; see `mix`."""

    shares: tuple[float, ...] = ()

    @property
    def ceiling(self) -> float:
        return max(m.ceiling for m in self.members)

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        alphas, state = self.all_weights(state, cohort)
        total = np.zeros(len(cohort))
        whole = math.fsum(self.shares)  # 1, up to the rounding of written shares
        for share, alpha in zip(self.shares, alphas, strict=True):
            total += share / whole * alpha
        return total, state

    def possible(self, cohort: Cohort, f: int, width: float = math.inf) -> float:
        return max(m.possible(cohort, f, width) for m in self.members)

    def support(self, n: int, width: float = math.inf) -> int:
        return max(m.support(n, width) for m, share in zip(self.members, self.shares, strict=True) if share > 0)


@STRATEGIES.register(
    formula="Σ_j share_j·alpha_j, shares on the simplex (equal by default)",
    examples=("mix(FedSoftWorse(T=0.2), FedAvg)", "mix(FedWorse, FedAvg, FedSoftBetter, shares=[0.2, 0.5, 0.3])"),
)
def mix(*rules: Strategy | str, shares: Sequence[float] | None = None) -> Mix:
    """A fixed mixture of rules.

    >>> import fedalpha
    >>> fedalpha.weights(mix("FedWorse", "FedAvg"), losses=[2, 1], sizes=[1, 1])
    array([0.75, 0.25])
    """
    members = parsed("mix", rules)
    if shares is not None and not (isinstance(shares, Sequence) and are_numbers(shares)):
        raise ValueError(f"mix: shares = {shares!r} must be a list of numbers, one per rule")
    given = tuple(shares) if shares is not None else (1 / len(members),) * len(members)
    if len(given) != len(members):
        raise ValueError(f"mix: {len(members)} rules but {len(given)} shares; give one share per rule")
    if any(not 0 <= s <= 1 for s in given) or abs(math.fsum(given) - 1) > 1e-9:
        raise ValueError(f"mix: shares = {list(given)} must be non-negative and sum to 1")
    return Mix(members, shares=tuple(float(s) for s in given))
