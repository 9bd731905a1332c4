"""The rate c·(round + γ)^−a at which `fade` and `cool` become FedAvg.

Rates are in rounds: with E local steps a round, c·(t + γ)^−a in steps t is (c/E^a)·(round + γ/E)^−a.
"""

from __future__ import annotations

from fedalpha.strategies.arguments import number


def decay(round: int, c: float, a: float, gamma: float) -> float:
    """c·(round + γ)^−a."""
    return float(c * (round + gamma) ** -a)


def checked_rate(owner: str, c: float, a: float, gamma: float) -> tuple[float, float, float]:
    """Check c, a and γ of a decay and return them; the guarantee needs a ≤ 1."""
    return number(owner, "c", c), number(owner, "a", a, most=1), number(owner, "gamma", gamma)
