"""The concentration of weights: if one client has nearly all of the weight, a sum is that client's update."""

from __future__ import annotations

import math
from collections.abc import Iterable


def effective(weights: Iterable[float]) -> float:
    """The number of equal clients as which these weights count: (Σ|a|)²/Σa².

    >>> effective([0.25, 0.25, 0.25, 0.25]), round(effective([0.98, 0.01, 0.01]), 2)
    (4.0, 1.04)
    """
    sizes = [abs(weight) for weight in weights]
    most = max(sizes, default=0.0)
    if not most:
        return 0.0
    shares = [size / most for size in sizes]
    return math.fsum(shares) ** 2 / math.fsum(share * share for share in shares)
