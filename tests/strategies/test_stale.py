"""Staleness discounts and the rules that use them, against their formulas."""

from __future__ import annotations

import numpy as np
import pytest

from fedalpha.strategies import Cohort, strategy, weigh, weights
from fedalpha.strategies.discounts import DISCOUNTS

LATE = np.array([0.0, 1.0, 4.0, 9.0])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("constant", [1, 1, 1, 1]),
        ("polynomial(a=0.5)", [1, 2**-0.5, 5**-0.5, 10**-0.5]),
        ("hinge(a=10, b=4)", [1, 1, 1, 1 / 51]),
    ],
)
def test_discounts(text: str, expected: list[float]) -> None:
    assert DISCOUNTS.parse(text).factors(LATE) == pytest.approx(expected)


@pytest.mark.parametrize("text", [text for entry in DISCOUNTS for text in entry.examples])
def test_every_discount_is_1_without_staleness_and_never_0(text: str) -> None:
    rule = DISCOUNTS.parse(text)
    assert rule.factors(np.zeros(2)).tolist() == [1, 1]
    found = rule.factors(np.arange(1000.0))
    assert (found > 0).all()
    assert (np.diff(found) <= 0).all()


def test_only_the_shares_change_unless_it_says_otherwise() -> None:
    sizes, losses = [3.0, 1.0], [1.0, 1.0]
    found = weights("stale(FedAvg, polynomial(a=1))", losses, sizes, staleness=[2, 0])
    assert found == pytest.approx([1 / 2, 1 / 2])
    off = weights("stale(FedAvg, polynomial(a=1), normalised=false, mix=0.5)", losses, sizes, staleness=[2, 0])
    assert off == pytest.approx([0.5 * 0.75 / 3, 0.5 * 0.25])


def test_the_rule_itself_without_staleness_to_the_bit() -> None:
    for rule in ("FedSoftWorse(T=0.2)", "FedBetter(k=0.5)", "cap(FedWorse, 0.5)"):
        plain = weights(rule, [0.3, 0.2, 0.9], [1, 2, 3])
        for outer in ("stale({}, polynomial(a=0.5))", "even({})"):
            assert (
                weights(outer.format(rule), [0.3, 0.2, 0.9], [1, 2, 3], staleness=[0, 0, 0]).tolist() == plain.tolist()
            )


def test_even_remembers_the_mean_staleness_of_each_client() -> None:
    rule = strategy("even(FedAvg)")
    state = rule.init(4)
    for late, expected in (([0, 2], [1 / 4, 3 / 4]), ([0, 0], [1 / 3, 2 / 3])):  # means 0 and 2, then 0 and 1
        cohort = Cohort(ids=[3, 1], sizes=[1, 1], staleness=late)  # type: ignore[arg-type]
        alpha, state = weigh(rule, state, cohort)
        assert alpha == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("stale(FedAvg, polynomial(a=0))", "polynomial: a = 0"),
        ("stale(FedAvg, hinge(a=1, b=-1))", "hinge: b = -1"),
        ("stale(FedAvg, constant, mix=0.5)", "needs normalised=false"),
        ("stale(qFedAvg)", "add normalised=false"),
        ("FedAsync(mix=2)", "FedAsync: mix = 2"),
        ("stale(FedAvg, cubic)", "unknown staleness discount"),
        ("even(qFedAvg)", "give a simplex rule"),
    ],
)
def test_bad_arguments_are_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        strategy(text)


def test_a_negative_staleness_is_refused() -> None:
    with pytest.raises(ValueError, match="staleness counts versions"):
        weights("stale(FedAvg)", [1, 1], staleness=[0, -1])
