"""The statistics agree with scipy and statsmodels on known samples."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from statsmodels.duration.survfunc import SurvfuncRight
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import DescrStatsW

from fedalpha.analysis.stats import holm, interval, median_time, paired, restricted_mean

RNG = np.random.default_rng(7)
SAMPLES = [RNG.normal(5, 2, n) for n in (2, 3, 10, 40)]


@pytest.mark.parametrize("x", SAMPLES, ids=len)
def test_intervals_are_students(x: np.ndarray) -> None:
    found = interval(x)
    assert (found.mean - found.half, found.mean + found.half) == pytest.approx(DescrStatsW(x).tconfint_mean())
    wide = interval(x, confidence=0.99)
    assert wide.mean + wide.half == pytest.approx(scipy.stats.ttest_1samp(x, 0).confidence_interval(0.99).high)


@pytest.mark.parametrize("x", SAMPLES, ids=len)
def test_paired_differences_are_those_of_the_paired_t_test(x: np.ndarray) -> None:
    y = x + RNG.normal(0.3, 0.5, len(x))
    found, known = paired(y, x), scipy.stats.ttest_rel(y, x)
    assert found.p == pytest.approx(known.pvalue)
    assert found.mean - found.half == pytest.approx(known.confidence_interval().low)


def test_differences_without_spread() -> None:
    assert paired([1, 2], [1, 2]).p == 1
    assert paired([2, 3], [1, 2]).p == 0.5  # two signs that agree
    for values, reference, p in (
        ([0.9, 0.8], [0.8, 0.7], 0.5),  # the same but for rounding
        ([0.1] * 3, [0.0] * 3, 0.25),
        ([0.1 + 0.2] * 4, [0.3] * 4, 1.0),
    ):
        found = paired(values, reference)
        assert (found.half, found.p) == (0, p)
    assert math.isnan(paired([2], [1]).p)
    with pytest.raises(ValueError, match="same seeds"):
        paired([1, 2], [1])


def test_holm_is_that_of_statsmodels() -> None:
    for n in (1, 2, 7):
        p = RNG.uniform(0, 0.2, n)
        assert holm(p.tolist()) == pytest.approx(multipletests(p, method="holm")[1])
    assert holm([0.01, math.nan, 0.04])[::2] == pytest.approx([0.02, 0.04])
    assert math.isnan(holm([math.nan])[0])


@pytest.mark.parametrize("n", [24, 25])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.7])
def test_censored_times_follow_kaplan_and_meier(share: float, n: int) -> None:
    times = RNG.integers(1, 30, n).astype(float)
    horizon = float(np.quantile(times, 1 - share)) if share else math.inf
    reached = times <= horizon
    seen = np.where(reached, times, horizon)
    known = SurvfuncRight(seen, reached)
    if len(seen) % 2:  # of an even number it is the middle between two times, which Kaplan and Meier do not take
        median = known.quantile(0.5)
        assert median_time(seen, reached) == (math.inf if math.isnan(median) else median)
    elif reached.all():
        assert median_time(seen, reached) == np.median(times)
    if share:
        moments = np.concatenate([[0], known.surv_times[known.surv_times <= horizon], [horizon]])
        heights = np.concatenate([[1], known.surv_prob[: len(moments) - 2]])
        area = float(np.sum(np.diff(moments) * heights))
        assert restricted_mean(seen, reached).mean == pytest.approx(area)
        with pytest.raises(ValueError, match="give at most"):
            restricted_mean(seen, reached, horizon + 1)
    else:
        assert restricted_mean(seen, reached) == interval(times)


def test_nobody_is_dropped() -> None:
    """A run that never arrives raises the mean; dropping it would lower it."""
    assert restricted_mean([4, 30], [True, False]).mean == 17
    assert restricted_mean([4, 30], [True, False]).n == 2


def test_one_value_has_no_interval() -> None:
    assert interval([2.0]).text() == "2.00"
    assert interval([]).text() == "–"
