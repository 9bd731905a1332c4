"""The interface of problems: client losses whose constants are all known.

A problem evaluates N clients at once. Points have shape (…, N, d): one point per client, any
number of leading axes (replicas, time). `at` evaluates every client at one common point.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from fedalpha.strategies import Array
from fedalpha.text import Registry
from fedalpha.theory.constants import Constants


class Problem(ABC):
    """Client losses F_i with F = Σ p_i F_i, a starting point w0 and certified `constants`."""

    p: Array
    w0: Array
    optima: Array
    """w_i*, one row per client."""
    constants: Constants

    @property
    def n(self) -> int:
        return len(self.p)

    @abstractmethod
    def losses(self, points: Array) -> Array:
        """F_i at its own point: (…, N, d) → (…, N)."""

    @abstractmethod
    def gradients(self, points: Array) -> Array:
        """∇F_i at its own point: (…, N, d) → (…, N, d)."""

    @abstractmethod
    def noisy_gradients(self, points: Array, random: np.random.Generator) -> Array:
        """g_i: unbiased, independent over clients and leading axes, variance ≤ sigma2."""

    def at(self, w: Array) -> Array:
        """F_i(w) for every client at common points: (…, d) → (…, N)."""
        return self.losses(self._common(w))

    def gradients_at(self, w: Array) -> Array:
        """∇F_i(w) for every client at common points: (…, d) → (…, N, d)."""
        return self.gradients(self._common(w))

    def excess(self, w: Array) -> Array:
        """x_i(w) = F_i(w) − F_i* at common points: (…, d) → (…, N)."""
        return self.at(w) - self.constants.Fi_star

    def _common(self, w: Array) -> Array:
        w = np.asarray(w, dtype=np.float64)
        return np.broadcast_to(w[..., None, :], (*w.shape[:-1], self.n, w.shape[-1]))


PROBLEMS: Registry[Problem] = Registry("problem", Problem, package=__package__)  # type: ignore[type-abstract]
"""Random problems by name: ``PROBLEMS.parse("quadratics(seed=3, n=8)")``."""
