"""`cool`: a soft rule whose temperature rises until it is FedAvg: no bias in the limit (docs/theory.md)."""

from __future__ import annotations

import math

from fedalpha.strategies.base import HERE, STRATEGIES, Strategy
from fedalpha.strategies.decay import checked_rate, decay
from fedalpha.strategies.tempered import Tempered, soft_member


class Cool(Tempered, name="cool"):
    """κ_max/κ_min ≤ 1 + c·(round + γ)^−a; see `cool`."""

    c: float = 1.0
    a: float = 1.0
    gamma: float = 1.0

    def log_limit(self, round: int) -> float:
        return math.log1p(decay(round, self.c, self.a, self.gamma))


@STRATEGIES.register(
    formula="the soft rule at 1/T = min(1/T_0, ln(1 + δ)/(max x − min x)), δ = c·(round + γ)^−a",
    reference=HERE,
    examples=("cool(FedSoftWorse(T=0.2))", "cool(FedSoftBetter(T=0.0), c=4.0, a=0.5, gamma=2.0)"),
)
def cool(rule: Strategy | str, *, c: float = 1.0, a: float = 1.0, gamma: float = 1.0) -> Cool:
    """An annealed temperature: κ_max/κ_min ≤ 1 + c·(round + γ)^−a, so the rule becomes FedAvg.

    For 0 < a ≤ 1 the expected distance to w* is O((t + γ)^−a). With ``prior=uniform`` the rule becomes the uniform
    mean instead, and w* is that of the uniform mean. The name refers to the rule, which becomes less sharp, although
    its temperature T rises.

    >>> import fedalpha
    >>> fedalpha.weights("cool(FedSoftWorse(T=0), c=3)", losses=[2, 1], sizes=[1, 1], round=0).round(3)
    array([0.8, 0.2])
    """
    return Cool(soft_member("cool", rule), *checked_rate("cool", c, a, gamma))
