"""Evidence that may be looked at after every pair: exact by enumeration of all signs, not by simulation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedalpha.analysis.anytime import bounds, evidence, p_value

Array = NDArray[np.float64]
SIZES = {
    "equal": np.ones(10),
    "normal": np.abs(np.random.default_rng(0).standard_normal(10)),
    "heavy tails": np.abs(np.random.default_rng(1).standard_cauchy(10)),
    "one outlier": np.array([0.1] * 9 + [1e6]),
    "ties": np.array([0.0, 1, 0, 2, 1, 0, 1, 3, 0, 1.0]),
}


def all_signs(sizes: Array) -> Array:
    """Every sequence with these magnitudes: seeds × sequences."""
    signs = np.array(list(itertools.product([-1.0, 1.0], repeat=len(sizes)))).T
    return signs * sizes[:, None]


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_given_the_magnitudes_the_evidence_is_one_on_average_at_every_look(sizes: Array) -> None:
    assert evidence(all_signs(sizes)).mean(axis=1) == pytest.approx(np.ones(10), rel=1e-9)


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=7))
def test_on_average_one_for_any_magnitudes(sizes: list[float]) -> None:
    assert evidence(all_signs(np.array(sizes))).mean(axis=1) == pytest.approx(np.ones(len(sizes)), rel=1e-9)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("error", [0.2, 0.05, 0.01])
def test_it_ever_exceeds_one_over_the_error_no_more_often_than_that(sizes: Array, error: float) -> None:
    assert (evidence(all_signs(sizes)).max(axis=0) >= 1 / error).mean() <= error


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_it_falls_on_average_if_differences_are_more_often_negative(sizes: Array) -> None:
    every = all_signs(sizes)
    chance = np.where(every < 0, 0.6, 0.4).prod(axis=0)
    expected = (evidence(every) * chance).sum(axis=1) / chance.sum()
    assert expected[0] <= 1 + 1e-12
    assert (np.diff(expected) <= 1e-12).all()


@pytest.mark.parametrize("sizes", [SIZES["normal"], SIZES["heavy tails"]], ids=["normal", "heavy tails"])
def test_the_bounds_contain_the_centre_of_symmetry_as_often_as_they_say(sizes: Array) -> None:
    """All 1,024 sign patterns have the same probability under symmetry about 7; a miss is a miss at any look."""
    every = all_signs(sizes)
    missed = np.maximum(evidence(every).max(axis=0), evidence(-every).max(axis=0)) >= 2 / 0.05
    assert 0 < missed.mean() <= 0.05
    for i in np.flatnonzero(missed)[::10]:
        found = [bounds(7 + every[:look, i]) for look in range(1, 11)]
        assert not all(b.low <= 7 <= b.high for b in found)
    for i in np.flatnonzero(~missed)[::100]:
        found = bounds(7 + every[:, i])
        assert found.low <= 7 <= found.high


def test_neither_units_nor_tiny_differences_matter() -> None:
    D = np.random.default_rng(2).standard_normal(20) + 0.5
    assert evidence(D * 1e-200) == pytest.approx(evidence(D), rel=1e-9)
    a, b = bounds(D), bounds(100 * D)
    assert (100 * a.low, 100 * a.high) == pytest.approx((b.low, b.high))


def test_many_pairs_do_not_overflow() -> None:
    assert np.isfinite(evidence(np.ones(3000))).all()
    assert p_value(np.ones(3000)) < 1e-100


def test_bounds_need_some_pairs_and_shrink() -> None:
    D = np.random.default_rng(3).standard_normal(200) + 1
    assert not bounds([]).known
    assert not bounds(D[:4]).known
    widths = [(b := bounds(D[:n])).high - b.low for n in (10, 40, 200)]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.7
    exact = bounds([1.0] * 8)
    assert exact.low == pytest.approx(1) == exact.high
