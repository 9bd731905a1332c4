"""`unbiased`: the mean over all cohorts is the rule's own prior."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fedalpha.strategies import Cohort, strategy


def test_the_mean_over_all_uniform_cohorts_is_p() -> None:
    """Every cohort of 2 of 4 clients, each with the chance 1/6: E[alpha] = p exactly; FedAvg's is not."""
    sizes = np.array([6.0, 2.0, 1.0, 1.0])
    mean, plain = np.zeros(4), np.zeros(4)
    for ids in itertools.combinations(range(4), 2):
        some = list(ids)
        cohort = Cohort(ids=some, sizes=sizes[some], design=sizes[some] / 10 / 0.5)
        mean[some] += strategy("unbiased(FedAvg)").weights({"members": [{}]}, cohort)[0] / 6
        plain[some] += strategy("FedAvg").weights({}, cohort)[0] / 6
    np.testing.assert_allclose(mean, sizes / 10, rtol=1e-12)
    assert abs(plain[0] - 0.6) > 0.1


def test_a_rule_sees_the_design_as_sizes() -> None:
    rule = strategy("unbiased(fade(FedSoftWorse(T=1)))")
    cohort = Cohort(ids=[0, 1], sizes=[1, 1], before=[1.0, 2.0], design=[0.75, 0.25], round=3)
    inner = strategy("fade(FedSoftWorse(T=1))")
    expected = inner.weights(inner.init(2), cohort.replace(sizes=[0.75, 0.25]))[0]
    np.testing.assert_allclose(rule.weights(rule.init(2), cohort)[0], expected, rtol=1e-12)
    with pytest.raises(ValueError, match="off the simplex"):
        strategy("unbiased(FedNova)")
