"""Projections are nearest points."""

from __future__ import annotations

import math

import numpy as np

from fedalpha.strategies.simplex import onto_box, onto_simplex


def test_projections_are_nearest_points() -> None:
    rng = np.random.default_rng(2)
    for _ in range(50):
        n = int(rng.integers(1, 8))
        point, p = rng.normal(size=n), rng.dirichlet(np.ones(n))
        found = onto_simplex(p, point)
        theta = (p + point - found)[found > 0]
        np.testing.assert_allclose(theta, theta[0])  # the same shift for all that are not at 0
        assert (p + point - theta[0] <= 1e-12)[found == 0].all()
        low, high = np.maximum(0, p - 0.1), np.minimum(1, p + 0.1)
        boxed = onto_box(point, low, high)
        assert abs(math.fsum(boxed) - 1) < 1e-12
        assert (boxed >= low).all()
        assert (boxed <= high).all()
