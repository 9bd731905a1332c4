"""Intervals against scipy; censored rounds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedalpha.stats import interval, paired, rounds_text


def test_the_interval_is_students() -> None:
    values = np.array([5.1, 6.2, 5.9, 6.6, 5.0])
    low, high = stats.t.interval(0.95, 4, values.mean(), stats.sem(values))
    found = interval(values)
    assert found.mean - found.half == pytest.approx(low)
    assert found.mean + found.half == pytest.approx(high)


def test_a_paired_difference_is_the_interval_of_differences() -> None:
    a, b = np.array([1.0, 2.0, 4.0]), np.array([0.5, 1.0, 5.0])
    assert paired(a, b) == interval(a - b)
    with pytest.raises(ValueError, match="same seeds"):
        paired(a, b[:2])


def test_one_value_has_no_interval() -> None:
    assert interval([2.0]).text() == "2.00"
    assert interval([]).text() == "–"


def test_runs_that_never_arrive_are_counted() -> None:
    assert rounds_text([3, None, None], 50) == "> 50 in 2 of 3"
