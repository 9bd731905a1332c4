"""FedMGDA against a general solver, and what it promises."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

import fedalpha
from fedalpha.strategies import STRATEGIES
from fedalpha.strategies.fedmgda import smallest_in_hull


@pytest.mark.parametrize("seed", range(8))
def test_the_smallest_vector_of_the_hull_agrees_with_a_general_solver(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 9))
    vectors = rng.normal(size=(n, int(rng.integers(1, 10))))
    gram, p, epsilon = vectors @ vectors.T, rng.dirichlet(np.ones(n)), float(rng.choice([0.05, 0.2, 1.0]))
    found = smallest_in_hull(gram, p, epsilon)
    other = minimize(
        lambda x: x @ gram @ x,
        p,
        jac=lambda x: 2 * gram @ x,
        bounds=list(zip(np.maximum(0, p - epsilon), np.minimum(1, p + epsilon), strict=True)),
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert abs(found.sum() - 1) < 1e-12
    assert (found >= np.maximum(0, p - epsilon)).all()
    assert (found <= np.minimum(1, p + epsilon)).all()
    assert found @ gram @ found <= other.fun + 1e-9


def test_fedmgda_makes_no_client_worse() -> None:
    """The common move has a non-negative product with every client's own, whatever their sizes."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        moves = rng.normal(size=(5, 8)) * rng.uniform(0.01, 100, size=(5, 1))
        alpha = fedalpha.weights("FedMGDA(epsilon=1)", np.ones(5), rng.uniform(1, 9, 5), gram=moves @ moves.T)
        assert ((alpha @ moves) @ moves.T >= -1e-6 * np.linalg.norm(moves, axis=1)).all()
    plain = fedalpha.weights("FedMGDA(epsilon=0)", np.ones(5), np.ones(5), gram=moves @ moves.T)
    np.testing.assert_allclose(plain, 0.2 / np.linalg.norm(moves, axis=1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FedMGDA(epsilon=-1)", "epsilon = -1"),
        ("FedMGDA(prior=big)", "'big' is not one of size, uniform"),
    ],
)
def test_bad_arguments_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        STRATEGIES.parse(text)
