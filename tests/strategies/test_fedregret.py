"""FedRegret remembers, forgives noise and is bounded."""

from __future__ import annotations

import numpy as np
import pytest

from fedalpha import strategy
from fedalpha.strategies import Cohort


def alphas(text: str, losses: list[list[float]]) -> list[np.ndarray]:
    rule = strategy(text)
    state, found = rule.init(), []
    for i, row in enumerate(losses):
        alpha, state = rule.weights(state, Cohort(ids=[3, 7], sizes=[1, 1], round=i, before=row))
        found.append(alpha)
    return found


def test_the_formula_over_rounds() -> None:
    rows = [[1.0, 2.0], [1.0, 1.5], [2.0, 1.0]]
    sums, squares = np.zeros(2), np.zeros(2)
    for row, alpha in zip(np.array(rows), alphas("FedRegret(limit=3.0)", rows), strict=True):
        x = np.clip((row - row.mean()) / row.mean(), -1, 1)
        sums, squares = sums + x, squares + x**2
        score = np.exp(np.clip(sums / np.sqrt(1 + squares), -np.log(3), np.log(3)))
        np.testing.assert_allclose(alpha, score / score.sum(), rtol=1e-12)


def test_a_lasting_disadvantage_counts_up_to_the_limit_and_noise_cancels() -> None:
    lasting = alphas("FedRegret", [[1.0, 3.0]] * 100)
    assert lasting[0][1] < lasting[5][1] <= lasting[-1][1] == pytest.approx(0.8)  # a factor of 2 each way
    noise = alphas("FedRegret", [[1.0, 3.0], [3.0, 1.0]] * 50)
    assert noise[-1] == pytest.approx([0.5, 0.5])


def test_wrong_parameters_are_explained() -> None:
    with pytest.raises(ValueError, match=r"limit = 0.5; give the largest"):
        strategy("FedRegret(limit=0.5)")
