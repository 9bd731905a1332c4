"""Evidence from paired differences that may be looked at after every pair.

**The hypothesis.** D_1, D_2, … are the differences of two candidates, one per seed (A minus B). H: "A is not ahead
of B", that is, whatever the earlier differences were, a difference of a given size is at most as likely to favour A
as to favour B: P(D_s > 0 | D_1 … D_{s−1}, |D_s|) ≤ ½ wherever D_s ≠ 0. Two names for one rule satisfy it in both
directions, whatever the distribution of the scores is: exchanging the names changes the sign of D_s and nothing else.
So does every D_s that is symmetric about a centre ≤ 0 with a density that falls away from it.

**The process.** Before the sign of D_s is known, the bet b_s ∈ [0, 1) is chosen from the earlier differences and
from |D_s|. With wealth W_0 = 1 and W_s = W_{s−1}·(1 + b_s·sign D_s),

    E[W_s | D_1 … D_{s−1}, |D_s|] = W_{s−1}·(1 + b_s·(P(D_s > 0 | …) − P(D_s < 0 | …))) ≤ W_{s−1}    under H,

so W is a nonnegative supermartingale that starts at 1. By Ville's inequality P(W_s ≥ 1/a for any s) ≤ a: the
evidence may be looked at after every seed, the race may stop at any look and for any reason, and no number of seeds
is fixed before. Any average of such processes is one again.

**The bets.** For D_s ~ N(μ, σ²) the odds of the sign given |D_s| are exp(2μ|D_s|/σ²), so the bet that lets the
wealth grow fastest is tanh(δ|D_s|/σ), δ = μ/σ. σ is not known; the mean of D² is μ² + σ², so σ is replaced by the
root mean square of |D_1| … |D_s| over √(1 + δ²). The wealth is averaged over δ = ½, 1 and 2. Normality matters for
the power alone. No bet exceeds 0.98, so that no single difference ruins the wealth.

**What it costs.** A factor is below 2: after n seeds the evidence is below 2ⁿ, as small as any exact test that
assumes no distribution allows. Six seeds are the fewest that can exceed 40, the limit of two candidates at 5 %.

Reference: Ville, 1939; Ramdas et al., Game-theoretic statistics and safe anytime-valid inference, 2023, 2210.01948.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

_EFFECTS = np.array([0.5, 1.0, 2.0])
_SLOPES = _EFFECTS * np.sqrt(1 + _EFFECTS**2)
_LARGEST_BET = 0.98
_LARGEST_LOG = 700.0
"""Beyond it float64 overflows."""
_SHIFTS = 128
"""Centres that are tried per refinement of a confidence sequence."""


class Evidence:
    """The wealth against "not ahead", pair by pair; of many processes at a time if the differences are arrays.

    >>> wealth = Evidence()
    >>> [round(float(wealth.add(D)), 1) for D in (1.0, 1.2, 0.9, 1.1)]
    [1.8, 3.3, 5.9, 11.0]
    """

    def __init__(self) -> None:
        self._seen = 0
        self._norm: Array = np.zeros(())
        self._logs: Array = np.zeros(())

    def add(self, differences: ArrayLike) -> Array:
        """The wealth after one more difference; a difference of 0 leaves it as it is."""
        D = np.asarray(differences, dtype=np.float64)
        if not self._seen:
            self._norm, self._logs = np.zeros(D.shape), np.zeros((len(_SLOPES), *D.shape))
        self._seen += 1
        self._norm = np.hypot(self._norm, D)  # squares of tiny differences would be lost
        size = np.abs(D) * np.sqrt(self._seen) / np.where(self._norm > 0, self._norm, 1.0)
        bets = np.minimum(np.tanh(np.multiply.outer(_SLOPES, size)), _LARGEST_BET)
        self._logs = self._logs + np.log1p(bets * np.sign(D))
        found: Array = np.exp(np.minimum(self._logs, _LARGEST_LOG)).mean(axis=0)
        return found


def evidence(differences: ArrayLike) -> Array:
    """The wealth after each pair; seeds are the first axis, other axes are separate processes.

    >>> evidence([0.0, 0.0]).tolist()  # the same rule under two names
    [1.0, 1.0]
    """
    D = np.asarray(differences, dtype=np.float64)
    wealth = Evidence()
    return np.array([wealth.add(pair) for pair in D]).reshape(D.shape)


def p_value(differences: ArrayLike) -> float:
    """The p-value that is valid at every look: one over the largest evidence so far.

    >>> round(p_value([1.0, 1.2, 0.9, 1.1]), 3), p_value([-1.0, -1.2])
    (0.091, 1.0)
    """
    return float(1.0 / max(1.0, np.max(evidence(differences), initial=1.0)))


@dataclass(frozen=True)
class Bounds:
    """A confidence sequence at one look; infinite while too few pairs are there."""

    low: float
    high: float

    @property
    def known(self) -> bool:
        return bool(np.isfinite(self.high - self.low))


def bounds(differences: ArrayLike, error: float = 0.05) -> Bounds:
    """The centres of symmetry m that the pairs do not contradict: the m for which neither D − m nor m − D was ever
    "ahead" with an evidence of 2/error.

    If the D_s are independent and symmetric about a common m, then with probability 1 − error the bounds contain m
    after every seed. m is then the mean, and the median.

    >>> found = bounds([1.0, 1.2, 0.9, 1.1, 1.0, 1.3, 0.8, 1.1])
    >>> 0.5 < found.low < 0.9 and 1.2 < found.high < 1.6, bounds([1.0, 1.2]).known
    (True, False)
    """
    D = np.asarray(differences, dtype=np.float64)
    if len(D) == 0:
        return Bounds(-np.inf, np.inf)
    return Bounds(-_upper(-D, error), _upper(D, error))


def _upper(D: Array, error: float) -> float:
    """The largest m that is not contradicted, rounded up by at most one part in `_SHIFTS`² of the range."""
    middle = float(np.median(D))
    width = max(float(np.ptp(D)), 1e-12 * max(1.0, float(np.abs(D).max())))
    shifts = middle + width * np.concatenate([np.linspace(0, 1, _SHIFTS), np.geomspace(1, 1e4, _SHIFTS)[1:]])
    kept = ~_contradicted(D, shifts, error)
    if kept[-1]:
        return float("inf")
    last = int(np.flatnonzero(kept)[-1]) if kept.any() else 0
    finer = np.linspace(shifts[last], shifts[last + 1], _SHIFTS)
    kept = ~_contradicted(D, finer, error)
    last = int(np.flatnonzero(kept)[-1]) if kept.any() else 0
    return float(finer[min(last + 1, _SHIFTS - 1)])


def _contradicted(D: Array, shifts: Array, error: float) -> NDArray[np.bool_]:
    """For which m the differences were clearly below m at some look."""
    found: NDArray[np.bool_] = evidence(shifts - D[:, None]).max(axis=0) >= 2 / error
    return found
