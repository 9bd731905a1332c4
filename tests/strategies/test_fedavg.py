"""FedAvg by hand."""

from __future__ import annotations

import pytest

from cohorts import weights
from fedalpha.strategies import strategy


@pytest.mark.parametrize(
    ("text", "losses", "sizes", "expected"),
    [
        # p alone, whatever the losses
        ("FedAvg", [5, 1, 2], [10, 30, 60], [0.1, 0.3, 0.6]),
        ("FedAvg", [5, 1, 2], [0.5, 0, 1.5], [0.25, 0, 0.75]),
        ("FedAvg(prior=uniform)", [5, 1], [10, 30], [0.5, 0.5]),
        ("FedAvg", [5, 1], None, [0.5, 0.5]),
    ],
)
def test_weights_by_hand(text: str, losses: list[float], sizes: list[float] | None, expected: list[float]) -> None:
    assert weights(text, losses, sizes) == pytest.approx(expected, rel=1e-14, abs=0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FedAvg(prior=sise)", "prior = 'sise' is not one of size, uniform"),
    ],
)
def test_bad_parameters_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        strategy(text)
