"""FedBalance: the class mix of the cohort becomes that of all clients, as near to p as possible."""

from __future__ import annotations

import numpy as np
import pytest

import fedalpha
from fedalpha import strategy
from fedalpha.strategies import Cohort

RANDOM = np.random.default_rng(0)


def after(rule: str, first: np.ndarray, then: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    one = strategy(rule)
    _, state = one.weights(one.init(), Cohort(ids=np.arange(len(first)), sizes=first.sum(axis=1), labels=first))
    return one.weights(state, Cohort(ids=np.arange(len(then)), sizes=sizes, labels=then, round=1))[0]


def test_the_mix_of_the_cohort_comes_nearer_to_that_of_all() -> None:
    for _ in range(20):
        everybody = RANDOM.integers(1, 100, (40, 4)).astype(float)
        cohort = RANDOM.integers(0, 100, (6, 4)) * (RANDOM.random((6, 4)) < 0.6) + 1.0
        sizes = cohort.sum(axis=1)
        p, shares = sizes / sizes.sum(), cohort / sizes[:, None]
        all_ = everybody.sum(axis=0) / everybody.sum()
        target = (all_ + p @ shares) / 2
        alpha = after("FedBalance(ridge=0.001)", everybody, cohort, sizes)
        assert np.linalg.norm(alpha @ shares - target) < 0.5 * np.linalg.norm(p @ shares - target)


def test_the_weights_are_an_exponential_tilt_and_solve_the_equation() -> None:
    everybody, cohort = np.eye(3) * 10 + 1, np.array([[9.0, 1, 0], [8, 2, 0], [1, 1, 8]])
    sizes = cohort.sum(axis=1)
    p, shares = sizes / sizes.sum(), cohort / sizes[:, None]
    target = (np.full(3, 1 / 3) + p @ shares) / 2
    alpha = after("FedBalance(ridge=0.1)", everybody, cohort, sizes)
    tilt = (target - alpha @ shares) / 0.1  # where the slope is 0
    expected = p * np.exp(shares @ tilt)
    np.testing.assert_allclose(alpha, expected / expected.sum(), rtol=1e-6)


def test_with_everybody_in_every_round_it_is_fedavg() -> None:
    labels = RANDOM.integers(1, 9, (5, 3)).astype(float)
    np.testing.assert_allclose(
        fedalpha.weights("FedBalance", np.zeros(5), labels.sum(axis=1), labels=labels),
        labels.sum(axis=1) / labels.sum(),
        rtol=1e-9,
    )


def test_wrong_parameters_are_explained() -> None:
    with pytest.raises(ValueError, match="ridge = 0"):
        strategy("FedBalance(ridge=0)")
