"""`temper`: a soft rule never sharper than κ_max/κ_min = 1/π: bounded bias (docs/theory.md)."""

from __future__ import annotations

import math
from dataclasses import field

from fedalpha.strategies.arguments import number
from fedalpha.strategies.base import HERE, STRATEGIES, Strategy
from fedalpha.strategies.tempered import Tempered, soft_member


class Temper(Tempered, name="temper"):
    """κ_max/κ_min ≤ 1/π; see `temper`."""

    pi: float = field(default=0.5, metadata={"always": True})

    def log_limit(self, round: int) -> float:
        return -math.log(self.pi)


@STRATEGIES.register(
    formula="the soft rule at T = max(T_0, (max x − min x)/ln(1/π))",
    reference=HERE,
    examples=("temper(FedSoftWorse(T=0.2), 0.5)", "temper(FedSoftBetter(T=0.0), pi=0.2)"),
)
def temper(rule: Strategy | str, pi: float) -> Temper:
    """A soft rule with bounded κ: π ≤ alpha_i/p_i ≤ 1/π for every client (prior = size).

    The bias of the limit is then at most (L_F Γ/μ)·(1/π − 1)/(1 + 3π/8).

    >>> import fedalpha
    >>> fedalpha.weights("temper(FedSoftWorse(T=0), 0.25)", losses=[2, 1], sizes=[1, 1]).round(3)
    array([0.8, 0.2])
    """
    return Temper(soft_member("temper", rule), number("temper", "pi", pi, below=1))
