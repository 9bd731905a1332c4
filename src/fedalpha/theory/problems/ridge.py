"""Ridge regression: a quadratic per client, from data.

F_i(w) = ‖X_i w − y_i‖²/(2 n_i) + (λ/2)‖w‖², so A_i = X_i'X_i/n_i + λI and c_i solves A_i c = X_i'y_i/n_i.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedalpha.rng import generator
from fedalpha.strategies import Array
from fedalpha.theory.problems.base import PROBLEMS
from fedalpha.theory.problems.quadratics import Quadratics


@dataclass(frozen=True, eq=False)
class Ridge(Quadratics):
    """The quadratics of the data; ``features[i]`` is (n_i, d) and ``targets[i]`` (n_i,)."""

    features: tuple[Array, ...] = ()
    targets: tuple[Array, ...] = ()
    penalty: float = 0.1

    @classmethod
    def fit(
        cls, features: list[Array], targets: list[Array], penalty: float, *, w0: Array, sigma: float = 0.0
    ) -> Ridge:
        """The problem of the given client data, with p in proportion to the sizes."""
        sizes = np.array([len(y) for y in targets], dtype=np.float64)
        identity = np.eye(len(w0))
        A = np.stack([X.T @ X / len(X) + penalty * identity for X in features])
        c = np.stack([np.linalg.solve(a, X.T @ y / len(y)) for a, X, y in zip(A, features, targets, strict=True)])
        residual = [np.square(X @ w - y).mean() / 2 for X, y, w in zip(features, targets, c, strict=True)]
        b = np.array(residual) + penalty / 2 * np.square(c).sum(-1)
        return cls(A, c, b, w0, sizes / sizes.sum(), sigma, tuple(features), tuple(targets), penalty)


@PROBLEMS.register(examples=("ridge", "ridge(seed=3, n=8, spread=0.5)"))
def ridge(
    seed: int = 0,
    n: int = 6,
    d: int = 4,
    *,
    spread: float = 1.0,
    penalty: float = 0.5,
    sigma: float = 0.3,
    samples: int = 40,
) -> Ridge:
    """Random linear models that differ by ``spread`` between clients, with noisy targets.

    >>> problem = ridge(seed=1)
    >>> bool(np.allclose(problem.gradients(problem.optima), 0, atol=1e-12))
    True
    """
    random = generator(seed, "theory.ridge")
    common = random.standard_normal(d)
    features, targets = [], []
    for _ in range(n):
        size = int(random.integers(samples // 2, 2 * samples))
        X = random.standard_normal((size, d)) * random.uniform(0.5, 1.5, d)
        w = common + spread * random.standard_normal(d)
        features.append(X)
        targets.append(X @ w + 0.3 * random.standard_normal(size))
    return Ridge.fit(features, targets, penalty, w0=np.zeros(d), sigma=sigma)
