"""Weights on the simplex: normalised with exact sums, filled up to a cap, projected."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def normalise(a: Array) -> Array:
    """a / Σ a with an exactly rounded sum, so that the order of clients does not matter."""
    return a / math.fsum(a.tolist())


def shares(values: Array, otherwise: Array) -> Array:
    """values / Σ values, or ``otherwise`` where all are 0."""
    most = values.max()
    return normalise(values / most) if most > 0 else otherwise


def largest(p: Array, f: int) -> float:
    """The f largest weights together."""
    return min(1.0, math.fsum(np.sort(p)[::-1][:f].tolist()))


def fill(a: Array, c: float, mass: float) -> Array:
    """min(c, λ·a) with λ such that the sum is ``mass``; c wherever a > 0 if even that sums to less."""
    order = np.argsort(-a, kind="stable")
    ordered = a[order]
    support = int((ordered > 0).sum())
    if support * c <= mass:
        return np.where(a > 0, c, 0.0)
    # With the j largest at the cap the others share mass − j·c as a/tail_j: take the first j that fits.
    tails = np.cumsum(ordered[::-1])[::-1][:support]
    rest = mass - np.arange(support) * c
    fits = rest * (ordered[:support] / tails) <= c
    fits[-1] = True  # always so, up to rounding
    j = int(np.argmax(fits))
    with np.errstate(over="ignore"):  # a/tail_j may be huge for clients at the cap; it is at most 1 for the others
        filled: Array = np.minimum(c, rest[j] * (a / tails[j]))
    return filled


def onto_simplex(start: Array, climb: Array) -> Array:
    """The point of the simplex nearest to start + climb.

    >>> onto_simplex(np.array([0.5, 0.5]), np.array([0.1, 0.3]))
    array([0.4, 0.6])
    """
    zero, one = np.zeros(len(start)), np.ones(len(start))
    return onto_box(start + (climb - climb.max()), zero, one)


def onto_box(point: Array, low: Array, high: Array) -> Array:
    """The nearest λ with Σλ = 1 and low ≤ λ ≤ high: clip(point − θ), where the sum is piecewise linear in θ.

    Every client is treated alike and sums are exact, so that the order of clients does not matter.
    """

    def clipped(theta: float) -> Array:
        return np.clip(point - theta, low, high)

    corners = np.unique(np.concatenate([point - high, point - low]))
    first, last = 0, len(corners) - 1  # the sum falls from ≥ 1 at the first corner to ≤ 1 at the last
    while last - first > 1:
        middle = (first + last) // 2
        if math.fsum(clipped(corners[middle]).tolist()) > 1:
            first = middle
        else:
            last = middle
    centre = corners[first] + (corners[last] - corners[first]) / 2
    free = (point - centre > low) & (point - centre < high)
    found = clipped(centre)
    if free.any():  # clients inside the box share what is left by those at its border
        rest = 1 - math.fsum(found[~free].tolist())
        theta = (math.fsum(point[free].tolist()) - rest) / int(free.sum())
        found = np.where(free, np.clip(point - theta, low, high), found)
    return found
