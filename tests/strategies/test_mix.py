"""`mix` by hand."""

from __future__ import annotations

import math

import pytest

from cohorts import weights
from fedalpha.strategies import (
    strategy,
)


def test_mix_by_hand() -> None:
    assert weights("mix(FedWorse, FedAvg)", [2, 1], [1, 3]) == [0.625, 0.375]
    text = "mix(FedWorse, FedBetter, FedAvg, shares=[0.25, 0.25, 0.5])"
    assert weights(text, [3, 2, 1], [2, 4, 2]) == [0.375, 0.25, 0.375]
    assert weights("mix(FedWorse, FedBetter, shares=[1, 0])", [3, 2, 1]) == [1, 0, 0]
    assert strategy("mix(FedWorse, FedAvg)").requires == {"before"}


def test_shares_written_with_few_digits_still_give_weights_that_sum_to_1() -> None:
    shares = "[0.3333333333, 0.3333333333, 0.3333333333]"
    rule = strategy(f"mix(FedWorse, FedBetter, FedAvg, shares={shares})")
    assert abs(math.fsum(weights(rule, [3, 2, 1])) - 1) <= 3e-15
    assert f"shares={shares}" in str(rule)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mix(FedAvg)", r"1 rule\(s\) given, at least 2"),
        ("mix(FedAvg, FedWorse, shares=[1])", "2 rules but 1 shares; give one share per rule"),
        ("mix(FedAvg, FedWorse, shares=[0.5, 0.6])", "non-negative and sum to 1"),
        ("mix(FedAvg, FedWorse, shares=[-0.5, 1.5])", "non-negative and sum to 1"),
        ("mix(FedAvg, FedWorse, shares=[nan, 1])", "non-negative and sum to 1"),
        ("mix(FedAvg, FedWorse, shares=[1e308, 1e308])", "non-negative and sum to 1"),
        ("mix(FedAvg, FedWorse, shares=1)", "shares = 1 must be a list of numbers"),
        ("mix(FedAvg, FedWorse, shares=[half, half])", "must be a list of numbers"),
        ("mix(FedAvg, FedWorse, shares=[none, 1])", "must be a list of numbers"),
    ],
)
def test_bad_arguments_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        strategy(text)
