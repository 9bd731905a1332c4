"""Means with 95 % intervals (Student t), paired differences, Holm's correction, censored times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


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


@dataclass(frozen=True)
class Difference(Interval):
    """The mean of paired differences, with the two-sided p-value of the paired t test (NaN for one pair).

    ``bound`` is ≥ or ≤ where times that were never reached enter on one side; where they enter on both it says at
    which time all were cut, and the difference is that of the cut times.
    """

    p: float
    bound: str = ""

    @property
    def mark(self) -> str:
        """``bound`` without punctuation: empty, ≥, ≤ or the time at which all were cut."""
        return self.bound.rstrip(" :")

    def text(self, digits: int = 2, scale: float = 1.0) -> str:
        return self.bound + super().text(digits, scale)


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


def paired(values: ArrayLike, reference: ArrayLike, confidence: float = 0.95) -> Difference:
    """The mean of values − reference: same seeds, same order.

    Without any spread in the differences, but for rounding, there is no t test: the p-value is then that of their
    signs, 2·2⁻ⁿ (or 1, if they are all zero).

    >>> paired([2.0, 3.0, 4.5], [1.0, 2.0, 3.0]).text()
    '1.17 ± 0.72'
    """
    from scipy import stats

    a, b = np.asarray(values, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    if a.shape != b.shape:
        raise ValueError(f"{len(a)} values against {len(b)}: a paired difference needs the same seeds on both sides")
    found = interval(a - b, confidence)
    if found.n < 2:
        return Difference(found.mean, found.half, found.n, np.nan)
    rounding = 1e-12 * float(np.abs([a, b]).max())
    if np.ptp(a - b) <= rounding:
        return Difference(found.mean, 0.0, found.n, 1.0 if abs(found.mean) <= rounding else 2.0 ** (1 - found.n))
    error = float((a - b).std(ddof=1) / np.sqrt(found.n))
    return Difference(found.mean, found.half, found.n, 2 * float(stats.t.sf(abs(found.mean) / error, found.n - 1)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: p-values that hold for all comparisons together; NaN is not counted.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    adjusted: NDArray[np.float64] = np.full(len(p), np.nan)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(factors * p[order]))
    return [float(value) for value in adjusted]


def restricted_mean(times: ArrayLike, reached: ArrayLike, horizon: float | None = None) -> Interval:
    """The mean of min(time, horizon), for times some of which are only known to be larger (``reached`` False).

    The horizon is at most the smallest censored time (the default). So each min(time, horizon) is known exactly,
    and no run is dropped: it is the area under the Kaplan–Meier curve up
    to there, and a lower bound of the mean time.

    >>> restricted_mean([4, 6, 10], [True, True, False]).mean
    6.666666666666667
    """
    t, seen = np.asarray(times, dtype=np.float64), np.asarray(reached, dtype=bool)
    limit = float(t[~seen].min()) if (~seen).any() else np.inf
    if horizon is not None:
        if horizon > limit:
            raise ValueError(f"horizon = {horizon:g}, but a time is only known to exceed {limit:g}; give at most that")
        limit = horizon
    return interval(np.minimum(t, limit))


def median_time(times: ArrayLike, reached: ArrayLike) -> float:
    """The median of times. Times that were never reached count as larger than all others; inf if the median is one.

    >>> median_time([4, 6, 10], [True, True, False]), median_time([4, 10, 10], [True, False, False])
    (6.0, inf)
    """
    return float(np.median(np.where(reached, np.asarray(times, dtype=np.float64), np.inf)))
