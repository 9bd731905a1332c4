"""`cap` by hand, against brute force, and what it promises."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import fedalpha
from cohorts import weights
from fedalpha.strategies import (
    Strategy,
    Traits,
    cap,
    strategy,
)


class Given(Strategy):
    """A rule that returns the losses as they are, to feed combinators with chosen weights."""

    def weights(self, state, cohort):
        return cohort.before, state


class OffSimplex(Given):
    traits = Traits(simplex=False)


@pytest.mark.parametrize(
    ("a", "sizes", "c", "expected"),
    [
        ([0.5, 0.3, 0.2], [1, 1, 1], 1, [0.5, 0.3, 0.2]),
        ([0.5, 0.3, 0.2], [1, 1, 1], 0.5, [0.5, 0.3, 0.2]),
        ([0.5, 0.3, 0.2], [1, 1, 1], 0.4, [0.4, 0.36, 0.24]),  # 0.6 shared 3 : 2
        ([0.6, 0.3, 0.1], [1, 1, 1], 0.4, [0.4, 0.4, 0.2]),  # 0.45 would pass the cap too
        ([1, 0, 0], [1, 3, 1], 0.5, [0.5, 0.375, 0.125]),  # overflow ∝ p, among the others
        ([1, 0, 0, 0], [1, 8, 1, 1], 0.4, [0.4, 0.4, 0.1, 0.1]),  # and capped as well
        ([1, 0, 0], [1, 0, 1], 0.4, [0.4, 0.2, 0.4]),  # clients without data come last
        ([0.5, 0.5, 0, 0], [1, 1, 1, 3], 0.375, [0.375, 0.375, 0.0625, 0.1875]),
        ([0.7, 0.2, 0.1, 0], [1, 2, 3, 4], 0.25, [0.25] * 4),
        ([1.0, 1e-320, 0], [1, 1, 1], 0.5, [0.5, 0.5, 0]),  # a tiny weight is still support
    ],
)
def test_cap_by_hand(a: list[float], sizes: list[float], c: float, expected: list[float]) -> None:
    assert weights(cap(Given(), c), a, sizes) == pytest.approx(expected, rel=1e-14, abs=1e-300)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 10, 49, 100])
def test_a_cap_of_1_over_n_is_uniform(n: int) -> None:
    for c in (1 / n, float(f"{1 / n:.14f}"), math.nextafter(1 / n, 1), math.nextafter(1 / n, 0)):
        alpha = fedalpha.weights(cap("FedSoftWorse(T=0.2)", c), np.arange(n), np.arange(n) + 1)
        np.testing.assert_allclose(alpha, np.full(n, 1 / n), rtol=1e-11)
        assert abs(math.fsum(alpha) - 1) <= 1e-15 * n


def test_a_cap_below_1_over_n_is_refused() -> None:
    with pytest.raises(ValueError, match=r"c = 0.1 is below 1/n: 9 clients cannot carry all of the weight; raise c"):
        weights("cap(FedAvg, 0.1)", range(9))
    assert weights("cap(FedAvg, 0.1)", range(10)) == pytest.approx([0.1] * 10, rel=1e-15)


def bisection(a: np.ndarray, c: float, mass: float) -> np.ndarray:
    """min(c, λ·a) with sum ``mass`` (or all of a's support at c), λ found by halving its logarithm."""
    if np.count_nonzero(a) * c <= mass:
        return np.where(a > 0, c, 0.0)
    low, high = -60.0, 60.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if np.minimum(c, 2**middle * a).sum() > mass else (middle, high)
    return np.minimum(c, 2**low * a)


parts = st.lists(st.tuples(st.one_of(st.just(0), st.integers(1, 10**6)), st.integers(0, 20)), min_size=1, max_size=9)


@settings(max_examples=300)
@given(parts.filter(lambda ab: any(a for a, _ in ab) and any(b for _, b in ab)), st.floats(0, 1))
@example([(10**6, 1)] + [(1, 0)] * 8, 0.0)
def test_cap_agrees_with_brute_force(clients: list[tuple[int, int]], slack: float) -> None:
    n = len(clients)
    a, sizes = (np.array(v, dtype=float) for v in zip(*clients, strict=True))
    a /= a.sum()
    c = 1 / n + slack * (1 - 1 / n)
    expected = bisection(a, c, 1.0)
    for spare in (sizes, np.ones(n)):
        if (left := 1 - expected.sum()) > 1e-12:
            spare = np.where(expected > 0, 0.0, spare)
            expected = expected + bisection(spare / max(spare.sum(), 1), c, left)
    alpha = fedalpha.weights(cap(Given(), c), a, sizes)
    np.testing.assert_allclose(alpha, expected, rtol=0, atol=1e-9)
    assert (alpha <= c).all()
    assert abs(math.fsum(alpha) - 1) <= 1e-15 * n


@pytest.mark.parametrize("loss", [148, 149, 155, 160, 200, 1e9, 1e300])
def test_a_cap_of_a_soft_rule_is_water_filling_however_far_the_losses_are(loss: float) -> None:
    """The others' weights underflow beside the first one's; among themselves they are a softmax as ever."""
    losses = [loss, 3, 3, 3, 3, 3, 0, 0, 0, 0]
    others = fedalpha.weights("FedSoftWorse(T=0.2)", losses[1:], np.ones(9))
    for text in (
        "FedSoftWorse(T=0.2)",
        "anneal(FedSoftWorse(T=0.2), T=1, rounds=9)",
        "switch(FedSoftWorse, FedAvg, at=1)",
    ):
        alpha = fedalpha.weights(f"cap({text}, 0.2)", losses, np.ones(10))
        np.testing.assert_allclose(alpha, [0.2, *(0.8 * others)], rtol=1e-12)
    steps = fedalpha.weights("cap(FedSoftWorse(T=0.001), 0.2)", [8, 7, 6, 5, 4, 3, 2], np.ones(7))
    np.testing.assert_allclose(steps, [0.2, 0.2, 0.2, 0.2, 0.2, 0, 0], atol=1e-299)


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.sampled_from([0, 1, 2, 2.5, 100, 151, 152, 1e5])), min_size=7, max_size=12
    ),
    st.sampled_from(["FedAvg", "FedSoftWorse(T=0.2)", "FedSoftBetter(T=0.2)", "FedSoftWorse(T=0.01, prior=uniform)"]),
)
def test_removing_a_client_lowers_nobodys_weight(clients: list[tuple[int, float]], text: str) -> None:
    """What the sensitivity 2·c·C of a capped mean rests on."""
    sizes, losses = (np.array(v, dtype=float) for v in zip(*clients, strict=True))
    rule = cap(text, 0.2)
    whole = fedalpha.weights(rule, losses, sizes)
    for i in range(len(clients)):
        rest = np.delete(np.arange(len(clients)), i)
        alpha = fedalpha.weights(rule, losses[rest], sizes[rest])
        assert (alpha >= whole[rest] - 1e-12).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cap(FedAvg, 0)", r"c = 0; give the largest weight allowed, in \(0, 1\]"),
        ("cap(FedAvg, 1.1)", "c = 1.1; give the largest"),
        ("cap(FedAvg, nan)", "c = nan; give the largest"),
        ("cap(FedAvg, true)", "c = True; give the largest"),
        ("cap(0.5, 0.5)", "0.5 is not a strategy"),
    ],
)
def test_bad_arguments_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        strategy(text)


def test_only_rules_on_the_simplex_can_be_capped() -> None:
    with pytest.raises(ValueError, match="is off the simplex and cannot be capped"):
        cap(OffSimplex(), 0.5)
