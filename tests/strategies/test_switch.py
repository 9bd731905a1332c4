"""`switch` by hand: rounds, accuracy, needs and states."""

from __future__ import annotations

import pytest

from cohorts import members, weights
from fedalpha.strategies import (
    Cohort,
    strategy,
)


@pytest.mark.parametrize(("round", "first"), [(0, True), (19, True), (20, False), (21, False), (10**6, False)])
def test_switch_at_20_gives_rounds_0_to_19_to_the_first_rule(round: int, first: bool) -> None:
    expected = [1, 0] if first else [0, 1]
    assert weights("switch(FedWorse, FedBetter, at=20)", [3, 1], round=round) == expected


def test_switch_with_several_changes() -> None:
    text = "switch(FedWorse, FedAvg, FedBetter, FedAvg(prior=uniform), at=[2, 4, 4])"
    seen = [weights(text, [3, 1], [3, 1], round=r) for r in range(6)]
    assert seen == [[1, 0], [1, 0], [0.75, 0.25], [0.75, 0.25], [0.5, 0.5], [0.5, 0.5]]


def test_switch_at_0_starts_with_the_second_rule() -> None:
    assert weights("switch(FedWorse, FedBetter, at=0)", [3, 1]) == [0, 1]


def test_accuracy_switch_happens_once_and_stays() -> None:
    rule = strategy("switch(FedWorse, FedBetter, accuracy=0.6)")
    state, seen = rule.init(None), []
    for accuracy in (None, 0.1, 0.59999, None, 0.6, 0.2, None, 0.9):
        alpha, state = rule.weights(state, members(accuracy=accuracy))
        seen.append(alpha.tolist())
    assert seen == [[1, 0]] * 4 + [[0, 1]] * 4
    assert state["stage"] == 1


def test_accuracy_switch_with_several_changes_may_jump() -> None:
    rule = strategy("switch(FedWorse, FedAvg, FedBetter, accuracy=[0.5, 0.7])")
    alpha, state = rule.weights(rule.init(None), members(accuracy=0.55))
    assert alpha.tolist() == [0.5, 0.5]
    alpha, state = rule.weights(state, members(accuracy=0.0))
    assert (alpha.tolist(), state["stage"]) == ([0.5, 0.5], 1)
    alpha, state = rule.weights(rule.init(None), members(accuracy=0.7))
    assert (alpha.tolist(), state["stage"]) == ([0, 1], 2)


def test_needs_of_a_switch_follow_its_stage() -> None:
    at = strategy("switch(FedWorse(loss=before), FedAvg, FedWorse(loss=after), at=[1, 2])")
    assert at.requires == {"before", "after"}
    stages = [at.needs(at.init(None), Cohort(ids=[0], sizes=[1], round=r)) for r in range(3)]
    assert stages == [{"before"}, set(), {"after"}]
    by_accuracy = strategy("switch(FedWorse(loss=train), FedAvg, accuracy=0.5)")
    assert by_accuracy.requires == {"train", "accuracy"}
    start = by_accuracy.init(None)
    assert by_accuracy.needs(start, Cohort(ids=[0], sizes=[1])) == {"train", "accuracy"}
    assert by_accuracy.needs(start, Cohort(ids=[0], sizes=[1], accuracy=0.5)) == set()
    assert by_accuracy.needs({**start, "stage": 1}, Cohort(ids=[0], sizes=[1], accuracy=0.1)) == set()


def test_members_of_a_switch_keep_their_state_while_they_wait() -> None:
    rule = strategy("switch(FedSoftWorse(T=1, optima=estimated), FedAvg, at=1)")
    _, one = rule.weights(rule.init(None), members([3.0, 1.0]))
    _, two = rule.weights(one, members([9.0, 0.0], round=1))
    assert two["members"][0]["values"].tolist() == [3.0, 1.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("switch(FedAvg, at=3)", r"1 rule\(s\) given, at least 2 needed"),
        ("switch(FedAvg, FedWorse)", "either at= .* or accuracy="),
        ("switch(FedAvg, FedWorse, at=3, accuracy=0.5)", "only one of them"),
        ("switch(FedAvg, FedWorse, at=[3, 4])", r"2 rules need 1 change\(s\), but at has 2"),
        ("switch(FedAvg, FedWorse, at=[])", r"2 rules need 1 change\(s\), but at has 0"),
        ("switch(FedAvg, FedWorse, FedBetter, at=[4, 3])", r"at = \[4, 3\] must not decrease"),
        ("switch(FedAvg, FedWorse, at=-1)", "whole numbers counted from 0"),
        ("switch(FedAvg, FedWorse, at=1.5)", "whole numbers counted from 0"),
        ("switch(FedAvg, FedWorse, at=inf)", "whole numbers counted from 0"),
        ("switch(FedAvg, FedWorse, at=nan)", "whole numbers counted from 0"),
        ("switch(FedAvg, FedWorse, at=soon)", "at = 'soon' must be a number or a list"),
        ("switch(FedAvg, FedWorse, at=true)", "at = True must be a number or a list"),
        ("switch(FedAvg, FedWorse, at=[none, 3])", "must be a number or a list of numbers"),
        ("switch(FedAvg, FedWorse, accuracy=60)", "between 0 and 1 .0.6, not 60"),
        ("switch(FedAvg, FedWorse, accuracy=nan)", "between 0 and 1 .0.6, not 60"),
        ("switch(FedAvg, 3, at=3)", "3 is not a strategy; write for example"),
    ],
)
def test_bad_arguments_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        strategy(text)
