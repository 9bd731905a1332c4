"""Means with 95 % intervals (Student t), and paired differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class Interval:
    """mean ± half, at the given confidence; half is NaN for fewer than two values."""

    mean: float
    half: float
    n: int

    def text(self, digits: int = 2, scale: float = 1.0) -> str:
        if np.isnan(self.mean):
            return "–"
        middle = f"{scale * self.mean:.{digits}f}"
        return middle if np.isnan(self.half) else f"{middle} ± {scale * self.half:.{digits}f}"


def interval(values: ArrayLike, confidence: float = 0.95) -> Interval:
    """mean ± t·s/√n.

    >>> interval([5.0, 6.0, 7.0]).text()
    '6.00 ± 2.48'
    """
    from scipy import stats

    x = np.asarray(values, dtype=np.float64)
    if len(x) == 0:
        return Interval(np.nan, np.nan, 0)
    if len(x) == 1:
        return Interval(float(x[0]), np.nan, 1)
    t = float(stats.t.ppf(0.5 + confidence / 2, len(x) - 1))
    return Interval(float(x.mean()), t * float(x.std(ddof=1)) / float(np.sqrt(len(x))), len(x))


def paired(values: ArrayLike, reference: ArrayLike, confidence: float = 0.95) -> Interval:
    """The mean of values − reference with the interval of the differences: same seeds, same order.

    >>> paired([2.0, 3.0, 4.0], [1.0, 2.0, 3.0]).text()
    '1.00 ± 0.00'
    """
    a, b = np.asarray(values, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    if a.shape != b.shape:
        raise ValueError(f"{len(a)} values against {len(b)}: a paired difference needs the same seeds on both sides")
    return interval(a - b, confidence)


def rounds_text(rounds: Sequence[int | None], limit: int) -> str:
    """R_p over seeds; runs that never got there are counted, not dropped.

    >>> rounds_text([5, 6, 7], 30), rounds_text([5, None], 30)
    ('6.0 ± 2.5', '> 30 in 1 of 2')
    """
    reached = [r for r in rounds if r is not None]
    if len(reached) < len(rounds):
        return f"> {limit} in {len(rounds) - len(reached)} of {len(rounds)}"
    return interval(reached).text(1)
