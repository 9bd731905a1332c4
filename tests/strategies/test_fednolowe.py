"""FedNolowe by hand."""

from __future__ import annotations

import numpy as np
import pytest

import fedalpha
from fedalpha.strategies import STRATEGIES


def test_fednolowe_by_hand() -> None:
    np.testing.assert_allclose(fedalpha.weights("FedNolowe", [1, 2, 5], [9, 1, 1]), [7 / 16, 6 / 16, 3 / 16])
    np.testing.assert_allclose(fedalpha.weights("FedNolowe", [0, 0, 0]), 1 / 3)
    assert fedalpha.weights("FedNolowe", [3]).tolist() == [1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FedNolowe(loss=test)", "'test' is not one of before, train, after"),
    ],
)
def test_bad_arguments_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        STRATEGIES.parse(text)


def test_negative_losses_are_refused_where_sizes_are_compared() -> None:
    with pytest.raises(ValueError, match="FedNolowe needs losses ≥ 0"):
        fedalpha.weights("FedNolowe", [-1, 1])
