"""`TERM`: tilted empirical risk, another parametrisation of the soft rules."""

from __future__ import annotations

import math

from fedalpha.strategies.base import STRATEGIES, Strategy
from fedalpha.strategies.fedavg import FedAvg
from fedalpha.strategies.soft import FedSoftBetter, FedSoftWorse


@STRATEGIES.register(
    formula="alpha_i ∝ p_i·e^(t·F_i): FedSoftWorse(T=1/t); t < 0: FedSoftBetter; t = 0: FedAvg",
    reference="Li et al., 2021, 2007.01162",
    examples=("TERM(t=1)", "TERM(t=-2, prior=uniform)", "TERM(t=0)"),
)
def TERM(t: float = 1.0, *, prior: str = "size") -> Strategy:
    """Tilted empirical risk minimisation, (1/t)·log Σ p_i·e^(t·F_i): the soft rules with t = ±1/T.

    >>> TERM(t=5)
    FedSoftWorse(T=0.2)
    """
    if isinstance(t, bool) or not isinstance(t, int | float) or not math.isfinite(t):
        raise ValueError(f"TERM: t = {t!r}; give a number (positive: towards the worst clients)")
    if t == 0:
        return FedAvg(prior=prior)
    return FedSoftWorse(T=1 / t, prior=prior) if t > 0 else FedSoftBetter(T=-1 / t, prior=prior)
