"""AFL by hand, and where it climbs to."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedalpha.strategies import AFL, STRATEGIES, Cohort


def test_afl_by_hand() -> None:
    """γ = 1, equal sizes, losses (1, 0.5, 0): λ = p, then Proj(p + F) = (3/4, 1/4, 0), for which θ = 7/12."""
    cohort = Cohort(ids=[4, 2, 9], sizes=[1, 1, 1], before=[1.0, 0.5, 0.0])
    rule = AFL(gamma=1)
    first, state = rule.weights(rule.init(), cohort)
    np.testing.assert_allclose(first, 1 / 3)
    second, state = rule.weights(state, cohort)
    np.testing.assert_allclose(second, [0.75, 0.25, 0], atol=1e-15)
    third, _ = rule.weights(state, cohort)  # Proj(1.75, 0.75, 0)
    np.testing.assert_allclose(third, [1, 0, 0], atol=1e-15)
    pair = Cohort(ids=[2, 9], sizes=[1, 3], before=[0.0, 0.0])  # a cohort without any λ falls back to the prior
    np.testing.assert_allclose(rule.weights(state, pair)[0], [0.25, 0.75])


def test_exponential_ascent_by_hand() -> None:
    cohort = Cohort(ids=[0, 1], sizes=[3, 1], before=[0.0, math.log(2)])
    rule = AFL(gamma=1, ascent="exponential")
    state = rule.init()
    for t in range(4):
        alpha, state = rule.weights(state, cohort)
        np.testing.assert_allclose(alpha[1] / alpha[0], 2**t / 3)


def test_afl_climbs_to_the_worst_client() -> None:
    cohort = Cohort(ids=[0, 1, 2], sizes=[1, 1, 1], before=[1.0, 2.0, 1.5])
    rule, state = AFL(gamma=0.1), AFL(gamma=0.1).init()
    for _ in range(30):
        alpha, state = rule.weights(state, cohort)
    assert alpha.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("AFL(gamma=0)", "gamma = 0"),
        ("AFL(ascent=up)", "'up' is not one of projected, exponential"),
    ],
)
def test_bad_arguments_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        STRATEGIES.parse(text)
