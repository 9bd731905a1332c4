"""FedSoftWorse and FedSoftBetter by hand, and their limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedalpha
from cohorts import weights
from fedalpha.strategies import FedAvg, FedSoftBetter, FedSoftWorse, strategy

LN2, LN3 = math.log(2), math.log(3)


@pytest.mark.parametrize(
    ("text", "losses", "sizes", "expected"),
    [
        # exp(ln 2) = 2 and exp(ln 3) = 3
        ("FedSoftWorse(T=1)", [0, LN2], [1, 1], [1 / 3, 2 / 3]),
        ("FedSoftWorse(T=1)", [0, LN2, LN3], [1, 1, 1], [1 / 6, 2 / 6, 3 / 6]),
        ("FedSoftWorse(T=0.5)", [0, LN2], [1, 1], [1 / 5, 4 / 5]),
        ("FedSoftWorse(T=2)", [0, 2 * LN3], [1, 1], [1 / 4, 3 / 4]),
        ("FedSoftWorse(T=1)", [0, LN2], [3, 1], [3 / 5, 2 / 5]),  # 3·1 : 1·2
        ("FedSoftWorse(T=1, prior=uniform)", [0, LN2], [3, 1], [1 / 3, 2 / 3]),
        ("FedSoftBetter(T=1)", [0, LN2], [1, 1], [2 / 3, 1 / 3]),
        ("FedSoftBetter(T=1)", [0, LN2], [1, 4], [1 / 3, 2 / 3]),  # 1·1 : 4·½
        ("FedSoftBetter(T=1, prior=uniform)", [0, LN2], [1, 4], [2 / 3, 1 / 3]),
        ("FedSoftBetter(T=0.5)", [LN2, 0], [1, 1], [1 / 5, 4 / 5]),
        # a client without data keeps weight 0 under the size prior, though its loss is the largest
        ("FedSoftWorse(T=1)", [99, 0, LN2], [0, 1, 1], [0, 1 / 3, 2 / 3]),
        ("FedSoftWorse(T=0)", [99, 1, 2], [0, 1, 1], [0, 0, 1]),
        ("FedSoftBetter(T=0)", [0, 1, 2], [0, 1, 1], [0, 1, 0]),
        ("FedSoftWorse(T=0, prior=uniform)", [99, 1, 2], [0, 1, 1], [1, 0, 0]),
        # T = 0 splits ties ∝ p
        ("FedSoftWorse(T=0)", [2, 1, 2], [1, 5, 3], [0.25, 0, 0.75]),
        ("FedSoftBetter(T=0)", [1, 2, 1], [1, 5, 3], [0.25, 0, 0.75]),
        # losses beyond exp's range
        ("FedSoftWorse(T=0.2)", [1e300, 0, 1e300], [1, 1, 3], [0.25, 0, 0.75]),
        ("FedSoftBetter(T=0.2)", [1e300, 0, 1e300], [1, 1, 3], [0, 1, 0]),
        ("FedSoftWorse(T=0.2)", [1e308, -1e308], [1, 1], [1, 0]),
        # a temperature so small that only ties matter
        ("FedSoftWorse(T=5e-324)", [1, 2, 2], [1, 1, 3], [0, 0.25, 0.75]),
        ("FedSoftBetter(T=1e-300)", [1, 2, 1], [1, 1, 3], [0.25, 0, 0.75]),
    ],
)
def test_weights_by_hand(text: str, losses: list[float], sizes: list[float] | None, expected: list[float]) -> None:
    assert weights(text, losses, sizes) == pytest.approx(expected, rel=1e-14, abs=0)


@pytest.mark.parametrize("rule", [FedSoftWorse, FedSoftBetter])
@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.floats(0, 1e300), st.integers(0, 1000)), min_size=1).filter(lambda c: any(s for _, s in c))
)
def test_infinite_temperature_is_fedavg_bit_for_bit(rule, clients: list[tuple[float, int]]) -> None:
    losses, sizes = zip(*clients, strict=True)
    for prior in ("size", "uniform"):
        soft = fedalpha.weights(rule(T=math.inf, prior=prior), losses, sizes)
        assert soft.tobytes() == fedalpha.weights(FedAvg(prior=prior), losses, sizes).tobytes()


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(-300, 300), st.integers(1, 50)), min_size=1, max_size=8), st.integers(1, 64))
def test_soft_rules_are_each_others_mirror_and_follow_the_formula(clients: list[tuple[int, int]], t: int) -> None:
    x, n = (np.array(v, dtype=float) for v in zip(*clients, strict=True))
    x, T = x / 64, t / 16
    worse = fedalpha.weights(FedSoftWorse(T=T), x, n)
    assert worse.tobytes() == fedalpha.weights(FedSoftBetter(T=T), -x, n).tobytes()
    direct = [ni * math.exp((xi - x.max()) / T) for xi, ni in zip(x, n, strict=True)]
    np.testing.assert_allclose(worse, np.array(direct) / math.fsum(direct), rtol=1e-12, atol=0)


def test_a_warm_temperature_tends_to_the_prior_and_a_cold_one_to_the_worst() -> None:
    losses, sizes = [1.0, 3.0, 2.0], [2, 1, 1]
    assert weights("FedSoftWorse(T=1e9)", losses, sizes) == pytest.approx([0.5, 0.25, 0.25], rel=1e-8)
    assert weights("FedSoftWorse(T=1e9)", losses, sizes) != [0.5, 0.25, 0.25]
    assert weights("FedSoftWorse(T=1e-3)", losses, sizes) == [0, 1, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FedSoftWorse(T=-1)", "T = -1; the temperature is a number ≥ 0"),
        ("FedSoftWorse(T=nan)", "T = nan; the temperature"),
        ("FedSoftWorse(T=true)", "T = True; the temperature"),
        ("FedSoftBetter(T=cold)", "T = 'cold'; the temperature"),
        ("FedSoftWorse(prior=1)", "prior = 1 is not one of size, uniform"),
    ],
)
def test_bad_parameters_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        strategy(text)


def test_a_temperature_beyond_float64_is_refused() -> None:
    with pytest.raises(ValueError, match="T is too large for float64; write T=inf"):
        FedSoftWorse(T=10**400)
