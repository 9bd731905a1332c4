"""`fade` by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fedalpha import strategy, weights

RANDOM = np.random.default_rng(0)


def test_fade_by_hand() -> None:
    assert weights("fade(FedWorse)", [2, 1], round=0) == pytest.approx([1, 0])
    assert weights("fade(FedWorse)", [2, 1], round=3) == pytest.approx([0.625, 0.375])  # ε = 1/4
    assert weights("fade(FedWorse, c=2, a=0.5, gamma=4)", [2, 1], [3, 1], round=12) == pytest.approx([0.875, 0.125])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fade(FedWorse, a=2)", "a = 2; give a number above 0 and at most 1"),
        ("fade(FedWorse, c=0)", "c = 0; give a number above 0"),
    ],
)
def test_wrong_parameters_are_explained(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        strategy(text)


def test_numbers_are_one_text() -> None:
    assert strategy("fade(FedWorse, c=5)") == strategy("fade(FedWorse, c=5.0)")
