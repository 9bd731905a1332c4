"""FedPIDAvg by hand, and how far it remembers."""

from __future__ import annotations

import numpy as np
import pytest

from cohorts import rounds
from fedalpha.strategies import STRATEGIES, strategy


def test_fedpidavg_by_hand() -> None:
    """Three rounds of two equal clients: d and I from the losses (4, 4), (2, 3), (2.5, 1)."""
    first, second, third = rounds(strategy("FedPIDAvg"), [4, 4], [2, 3], [2.5, 1])
    np.testing.assert_allclose(first, [0.5, 0.5])
    np.testing.assert_allclose(second, [0.225 + 0.45 * 2 / 3 + 0.1 * 6 / 13, 0.225 + 0.45 / 3 + 0.1 * 7 / 13])
    # The first loss rose (d = 0), so the second has all of b; I = 8.5 and 8.
    np.testing.assert_allclose(third, [0.225 + 0.1 * 8.5 / 16.5, 0.225 + 0.45 + 0.1 * 8 / 16.5])


def test_fedpidavg_forgets_what_is_older_than_its_memory() -> None:
    rule = strategy("FedPIDAvg(a=0, b=0, c=1, memory=1)")
    alphas = rounds(rule, [100, 1], [1, 1], [1, 3])
    np.testing.assert_allclose(alphas[1], [101 / 103, 2 / 103])
    np.testing.assert_allclose(alphas[2], [2 / 6, 4 / 6])


def test_fedpidavg_sums_the_present_loss_and_five_earlier_ones() -> None:
    """Ten rounds written out with a window of six, as in the public code that its docstring names."""
    losses = np.random.default_rng(0).uniform(0.5, 2, size=(10, 3))
    found = rounds(strategy("FedPIDAvg"), *losses.tolist(), sizes=[1, 2, 3])
    for t in range(1, 10):
        fall = np.maximum(losses[t - 1] - losses[t], 0)
        window = losses[max(0, t - 5) : t + 1].sum(axis=0)
        p = np.array([1, 2, 3]) / 6
        d = fall / fall.sum() if fall.sum() else p
        np.testing.assert_allclose(found[t], 0.45 * p + 0.45 * d + 0.1 * window / window.sum())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FedPIDAvg(a=0.5)", "a .* sum to 1"),
        ("FedPIDAvg(memory=0)", "memory = 0"),
    ],
)
def test_bad_arguments_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        STRATEGIES.parse(text)
