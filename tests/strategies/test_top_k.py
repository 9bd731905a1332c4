"""FedWorse and FedBetter by hand."""

from __future__ import annotations

import numpy as np
import pytest

import fedalpha
from cohorts import weights
from fedalpha.strategies import FedWorse, strategy


@pytest.mark.parametrize(
    ("text", "losses", "sizes", "expected"),
    [
        # argmax and argmin; ties share equally, sizes do not matter
        ("FedWorse", [1, 4, 2], [9, 1, 9], [0, 1, 0]),
        ("FedWorse", [4, 1, 4], [9, 1, 1], [0.5, 0, 0.5]),
        ("FedBetter", [1, 4, 2], [1, 9, 9], [1, 0, 0]),
        ("FedBetter", [4, 1, 1], [9, 1, 7], [0, 0.5, 0.5]),
        # an integer k counts clients; more than the cohort means all
        ("FedWorse(k=2)", [1, 4, 2, 3], [1, 1, 1, 1], [0, 0.5, 0, 0.5]),
        ("FedWorse(k=99)", [1, 4, 2, 3], [9, 1, 1, 1], [0.25] * 4),
        ("FedBetter(k=2)", [1, 4, 2, 3], [1, 1, 1, 1], [0.5, 0, 0.5, 0]),
        ("FedBetter(k=99)", [1, 4, 2, 3], [9, 1, 1, 1], [0.25] * 4),
        # clients tied at the cut share the mass that is left: m' = 2, one above, three tied for 1/2
        ("FedWorse(k=2)", [2, 5, 2, 1, 2], None, [1 / 6, 1 / 2, 1 / 6, 0, 1 / 6]),
        ("FedBetter(k=2)", [2, 0, 2, 9, 2], None, [1 / 6, 1 / 2, 1 / 6, 0, 1 / 6]),
        # m' = 3 with four clients tied for two places: 1/3, then (2/3)/4 each
        ("FedWorse(k=3)", [7, 7, 8, 7, 7], None, [1 / 6, 1 / 6, 1 / 3, 1 / 6, 1 / 6]),
        # a float k is a fraction
        ("FedWorse(k=0.5)", [1, 4, 2, 3], None, [0, 0.5, 0, 0.5]),
        ("FedWorse(k=1.0)", [1, 4, 2, 3], None, [0.25] * 4),
        ("FedWorse(k=1)", [1, 4, 2, 3], None, [0, 1, 0, 0]),
        ("FedBetter(k=0.5)", [1, 4, 2, 3, 5], None, [0.5, 0, 0.5, 0, 0]),  # ⌊2.5⌋ = 2
        ("FedBetter(k=0.01)", [1, 4, 2], None, [1, 0, 0]),  # never fewer than one
    ],
)
def test_weights_by_hand(text: str, losses: list[float], sizes: list[float] | None, expected: list[float]) -> None:
    assert weights(text, losses, sizes) == pytest.approx(expected, rel=1e-14, abs=0)


@pytest.mark.parametrize(("k", "m", "count"), [(0.29, 100, 29), (0.1, 30, 3), (0.7, 10, 7), (0.3, 10, 3), (0.2, 9, 1)])
def test_fractions_are_not_lost_to_rounding(k: float, m: int, count: int) -> None:
    """0.29·100 is 28.999… in float64: ⌊k·m + 1e-9⌋ is 29."""
    assert FedWorse(k=k).count(m) == count
    assert np.count_nonzero(fedalpha.weights(FedWorse(k=k), losses=np.arange(m))) == count


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FedWorse(k=0)", "k = 0; give a count .* or a fraction"),
        ("FedWorse(k=-3)", "k = -3; give a count"),
        ("FedWorse(k=0.0)", "k = 0.0; give a count"),
        ("FedWorse(k=nan)", "k = nan; give a count"),
        ("FedWorse(k=true)", "k = True; give a count"),
        ("FedBetter(k=1.5)", "k = 1.5 is a fraction above 1; write a whole number"),
        ("FedBetter(k=inf)", "k = inf is a fraction above 1; write a whole number"),
    ],
)
def test_bad_parameters_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        strategy(text)
