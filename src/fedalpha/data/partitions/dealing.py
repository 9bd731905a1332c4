"""How samples are dealt: whole counts in given proportions, stratified owners, Dirichlet draws."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedalpha.data.partitions.base import Indices


def by_label(labels: Indices, rng: np.random.Generator) -> list[Indices]:
    """The samples of each label, shuffled."""
    return [rng.permutation(np.flatnonzero(labels == k)) for k in range(int(labels.max()) + 1)]


def apportion(shares: NDArray[np.float64], total: int) -> Indices:
    """``total`` as whole numbers in the proportions of ``shares``: each rounded up or down (largest remainders up)."""
    shares = shares / shares.max()
    exact = shares * total / math.fsum(shares.tolist())
    # A share that differs from a whole number only by rounding errors counts as whole.
    whole = np.where(np.abs(exact - np.rint(exact)) < 1e-9, np.rint(exact), np.floor(exact)).astype(np.int64)
    up = np.argsort(-(exact - whole), kind="stable")[: total - int(whole.sum())]
    whole[up] += 1
    return whole


def stratified(labels: Indices, sizes: Indices, rng: np.random.Generator) -> Indices:
    """Owners such that client i has sizes[i] samples, and of each label its proportional count or one off.

    The proportional table is rounded down. Then, label by label, the samples that are left go one each to the
    clients that lack most. This is the construction of Gale and Ryser, which always meets the sizes exactly.
    """
    counts = np.bincount(labels)
    table = sizes[:, None] * counts[None, :] // len(labels)
    lacking = sizes - table.sum(axis=1)
    for k, left in enumerate(counts - table.sum(axis=0)):
        takers = np.lexsort((rng.random(len(sizes)), -lacking))[:left]
        table[takers, k] += 1
        lacking[takers] -= 1
    owners = np.empty(len(labels), dtype=np.int64)
    for k, samples in enumerate(by_label(labels, rng)):
        owners[samples] = np.repeat(np.arange(len(sizes)), table[:, k])
    return owners


def dirichlet_draw(a: float, clients: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """One draw of Dirichlet(a, …, a) up to its scale, in logarithms so that a tiny ``a`` does not underflow to 0/0.

    Gamma(a) has the law of Gamma(a + 1)·U^(1/a).
    """
    log_gamma = np.log(rng.standard_gamma(a + 1, clients)) + np.log1p(-rng.random(clients)) / a
    with np.errstate(under="ignore"):
        draw: NDArray[np.float64] = np.exp(log_gamma - log_gamma.max())
    return draw


def concentration(owner: str, a: object) -> float:
    if isinstance(a, bool) or not isinstance(a, int | float) or not 1e-9 <= a <= 1e9:
        raise ValueError(f"{owner}: a = {a!r}; give a concentration between 1e-9 and 1e9 (0.1 is skewed, 100 is even)")
    return float(a)
