"""A linear step before another rule, such as clipping or mixing, without a copy of any model."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedalpha.models import Parameters
from fedalpha.strategies import Array


@dataclass(frozen=True, eq=False)
class Moved:
    """The i-th update becomes by_i·x_i, or Σ_j by_ij·x_j if ``by`` is a matrix; x_i = w_i − w_t, ``base`` is w_t.

    >>> halved = Moved({}, np.array([0.5, 1.0]))
    >>> halved.then(np.array([[0.5, 0.5], [0.0, 1.0]])).by
    array([[0.25, 0.5 ],
           [0.  , 1.  ]])
    """

    base: Parameters
    by: Array

    def then(self, by: Array) -> Moved:
        """This step, then another."""
        if by.ndim == 1:
            return Moved(self.base, (by if self.by.ndim == 1 else by[:, None]) * self.by)
        return Moved(self.base, by * self.by if self.by.ndim == 1 else by @ self.by)

    def gram(self, products: Array) -> Array:
        """The Gram matrix after the step, from that before it."""
        if self.by.ndim == 1:
            found: Array = products * self.by[:, None] * self.by
            return found
        found = self.by @ products @ self.by.T
        return (found + found.T) / 2

    def coefficients(self, alpha: Array) -> tuple[Array, float]:
        """c and r with Σ alpha_i·(i-th model after the step) = Σ c_i·w_i + r·w_t."""
        found: Array = alpha * self.by if self.by.ndim == 1 else alpha @ self.by
        return found, math.fsum(alpha.tolist()) - math.fsum(found.tolist())

    def tile(self, values: NDArray[np.floating], base: NDArray[np.floating]) -> NDArray[np.floating]:
        """The models after the step at some coordinates, in their dtype; ``values`` has a row per client.

        The model of a client that neither changes others nor is changed keeps its bits.
        """
        wide = values - base.astype(np.float64)
        if self.by.ndim == 1:
            kept = self.by == 1
            wide *= self.by[:, None]
        else:
            kept = (self.by == np.eye(len(self.by))).all(axis=1)
            wide = self.by @ wide
        wide += base
        found = wide.astype(values.dtype)
        found[kept] = values[kept]
        return found
