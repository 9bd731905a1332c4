"""switch, anneal, mix, cap and floor against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import fedalpha
from fedalpha.strategies import Cohort, FedAvg, FedWorse, Strategy, Traits, anneal, cap, floor, mix, strategy, switch


def weights(text, losses, sizes=None, **rest) -> list[float]:
    return fedalpha.weights(text, losses, sizes, **rest).tolist()


def members(losses=(3.0, 1.0), sizes=None, **rest) -> Cohort:
    n = len(losses)
    return Cohort(ids=np.arange(n), sizes=np.ones(n) if sizes is None else sizes, before=losses, **rest)


class Given(Strategy):
    """A rule that returns the losses as they are, to feed combinators with chosen weights."""

    text_name = "Given"
    __str__ = __repr__ = lambda self: "Given"

    def weights(self, state, cohort):
        return cohort.before, state


class OffSimplex(Given):
    traits = Traits(simplex=False)


# switch


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


# anneal


@pytest.mark.parametrize(
    ("schedule", "round", "late"),
    [
        ("linear", 0, 0.0),
        ("linear", 1, 0.25),
        ("linear", 2, 0.5),
        ("linear", 3, 0.75),
        ("linear", 4, 1.0),
        ("linear", 99, 1.0),
        ("cosine", 0, 0.0),
        ("cosine", 1, (2 - math.sqrt(2)) / 4),
        ("cosine", 2, 0.5),
        ("cosine", 4, 1.0),
        ("cosine", 99, 1.0),
    ],
)
def test_anneal_mixes(schedule: str, round: int, late: float) -> None:
    text = f"anneal(FedWorse, FedBetter, rounds=4, schedule={schedule})"
    assert weights(text, [3, 1], round=round) == pytest.approx([1 - late, late], rel=1e-15)


@settings(max_examples=40)
@given(st.lists(st.integers(1, 99), min_size=1, max_size=6), st.integers(1, 60), st.sampled_from(["linear", "cosine"]))
def test_anneal_is_exactly_its_rules_at_the_ends(sizes: list[int], rounds: int, schedule: str) -> None:
    losses = np.arange(len(sizes)) / 7
    rule = anneal("FedSoftWorse(T=0.3)", "FedAvg", rounds=rounds, schedule=schedule)
    assert weights(rule, losses, sizes) == weights("FedSoftWorse(T=0.3)", losses, sizes)
    for late in (rounds, rounds + 1, 10 * rounds):
        assert weights(rule, losses, sizes, round=late) == weights("FedAvg", losses, sizes)


def test_needs_of_an_annealed_mixture_are_those_of_the_active_rules() -> None:
    rule = strategy("anneal(FedWorse(loss=before), FedWorse(loss=after), rounds=2)")
    assert rule.requires == {"before", "after"}
    needs = [rule.needs(rule.init(None), Cohort(ids=[0], sizes=[1], round=r)) for r in range(4)]
    assert needs == [{"before"}, {"before", "after"}, {"after"}, {"after"}]


@pytest.mark.parametrize(
    ("text", "round", "T"),
    [
        ("anneal(FedSoftWorse(T=0.25), T=inf, rounds=4)", 0, 0.25),  # 1/T: 4, 3, 2, 1, 0
        ("anneal(FedSoftWorse(T=0.25), T=inf, rounds=4)", 2, 0.5),
        ("anneal(FedSoftWorse(T=0.25), T=inf, rounds=4)", 3, 1.0),
        ("anneal(FedSoftWorse(T=0.25), T=inf, rounds=4)", 4, math.inf),
        ("anneal(FedSoftWorse(T=inf), T=0.5, rounds=2)", 0, math.inf),
        ("anneal(FedSoftWorse(T=inf), T=0.5, rounds=2)", 1, 1.0),
        ("anneal(FedSoftWorse(T=inf), T=0.5, rounds=2)", 7, 0.5),
        ("anneal(FedSoftWorse(T=1), T=0.25, rounds=2, schedule=cosine)", 1, 0.4),  # 1/T = 2.5
        ("anneal(FedSoftWorse(T=49), T=98, rounds=9)", 0, 49.0),  # 1/(1/49) is not 49 in float64
        ("anneal(FedSoftWorse(T=98), T=49, rounds=9)", 9, 49.0),
    ],
)
def test_anneal_of_the_temperature(text: str, round: int, T: float) -> None:
    rule = strategy(text)
    assert rule.rule(round).T == T
    losses, sizes = [0.3, 0.9, 0.1], [1, 2, 3]
    assert weights(rule, losses, sizes, round=round) == weights(f"FedSoftWorse(T={T})", losses, sizes)


def test_anneal_of_the_temperature_keeps_the_rest_of_the_rule() -> None:
    rule = strategy("anneal(FedSoftBetter(T=0.2, prior=uniform, loss=after, optima=estimated), T=2, rounds=3)")
    assert str(rule.rule(9)) == "FedSoftBetter(T=2.0, prior=uniform, loss=after, optima=estimated)"
    assert rule.requires == {"after"}


# mix


def test_mix_by_hand() -> None:
    assert weights("mix(FedWorse, FedAvg)", [2, 1], [1, 3]) == [0.625, 0.375]
    text = "mix(FedWorse, FedBetter, FedAvg, shares=[0.25, 0.25, 0.5])"
    assert weights(text, [3, 2, 1], [2, 4, 2]) == [0.375, 0.25, 0.375]
    assert weights("mix(FedWorse, FedBetter, shares=[1, 0])", [3, 2, 1]) == [1, 0, 0]
    assert strategy("mix(FedWorse, FedAvg)").requires == {"before"}


def test_shares_written_with_few_digits_still_give_weights_that_sum_to_1() -> None:
    shares = "[0.3333333333, 0.3333333333, 0.3333333333]"
    rule = strategy(f"mix(FedWorse, FedBetter, FedAvg, shares={shares})")
    assert abs(math.fsum(weights(rule, [3, 2, 1])) - 1) <= 3e-15
    assert f"shares={shares}" in str(rule)


# cap


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


# floor


def test_floor_by_hand() -> None:
    assert weights("floor(FedWorse, 0.5)", [2, 1, 0], [2, 1, 1]) == [0.75, 0.125, 0.125]
    assert weights("floor(FedWorse, 0)", [2, 1], [1, 3]) == [1, 0]
    assert weights("floor(FedWorse, 1)", [2, 1], [1, 3]) == [0.25, 0.75]
    assert weights("floor(FedBetter, pi=0.2)", [2, 1], [1, 1]) == pytest.approx([0.1, 0.9], rel=1e-15)


# shared


def test_traits_are_those_that_all_members_have() -> None:
    assert strategy("mix(FedWorse, FedAvg)").traits == Traits(shift_invariant=True, monotone=1)
    assert strategy("floor(FedSoftBetter, 0.1)").traits == Traits(shift_invariant=True, monotone=-1)
    assert strategy("switch(FedWorse, FedBetter, at=3)").traits == Traits(shift_invariant=True, monotone=None)
    assert strategy("mix(FedAvg, FedAvg)").traits.monotone == 0
    assert strategy("mix(FedAvg, FedWorse(optima=estimated))").traits.monotone is None
    assert mix(OffSimplex(), "FedAvg").traits == Traits(simplex=False, monotone=None)


def test_members_may_be_strategies_or_texts() -> None:
    assert switch(FedWorse(), FedAvg(), at=3) == switch("FedWorse", "FedAvg", at=3)
    assert cap(FedAvg(), 0.5) == cap("FedAvg", 0.5) == strategy("cap(FedAvg, c=0.5)")
    assert floor(cap("FedAvg", 0.5), 0.1) == strategy("floor(cap(FedAvg, 0.5), 0.1)")
    nested = "switch(anneal(FedWorse, FedAvg, rounds=5), mix(FedAvg, floor(FedBetter, pi=0.2)), at=9)"
    written = nested.replace("0.2))", "0.2), shares=[0.5, 0.5])")
    assert str(strategy(nested)) == written
    assert strategy(written) == strategy(nested)


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
        ("anneal(FedAvg, FedWorse, rounds=0)", "rounds = 0; give a whole number"),
        ("anneal(FedAvg, FedWorse, rounds=2.0)", "rounds = 2.0; give a whole number"),
        ("anneal(FedAvg, FedWorse, schedule=steep)", "'steep' is not one of linear, cosine"),
        ("anneal(FedAvg)", "either a second rule .* or T="),
        ("anneal(FedSoftWorse, FedAvg, T=1)", "either a second rule .* or T="),
        ("anneal(FedAvg, T=1)", "only the soft rules have a temperature, FedAvg has none"),
        ("anneal(FedSoftWorse, T=-1)", "the temperature is a number ≥ 0"),
        ("anneal(FedSoftWorse, T=0)", "both temperatures must be above 0"),
        ("anneal(FedSoftWorse(T=0), T=1)", "both temperatures must be above 0"),
        ("mix(FedAvg)", r"1 rule\(s\) given, at least 2"),
        ("mix(FedAvg, FedWorse, shares=[1])", "2 rules but 1 shares; give one share per rule"),
        ("mix(FedAvg, FedWorse, shares=[0.5, 0.6])", "non-negative and sum to 1"),
        ("mix(FedAvg, FedWorse, shares=[-0.5, 1.5])", "non-negative and sum to 1"),
        ("mix(FedAvg, FedWorse, shares=[nan, 1])", "non-negative and sum to 1"),
        ("mix(FedAvg, FedWorse, shares=[1e308, 1e308])", "non-negative and sum to 1"),
        ("mix(FedAvg, FedWorse, shares=1)", "shares = 1 must be a list of numbers"),
        ("mix(FedAvg, FedWorse, shares=[half, half])", "must be a list of numbers"),
        ("mix(FedAvg, FedWorse, shares=[none, 1])", "must be a list of numbers"),
        ("cap(FedAvg, 0)", r"c = 0; give the largest weight allowed, in \(0, 1\]"),
        ("cap(FedAvg, 1.1)", "c = 1.1; give the largest"),
        ("cap(FedAvg, nan)", "c = nan; give the largest"),
        ("cap(FedAvg, true)", "c = True; give the largest"),
        ("cap(0.5, 0.5)", "0.5 is not a strategy"),
        ("floor(FedAvg, -0.1)", r"pi = -0.1; give a share in \[0, 1\]"),
        ("floor(FedAvg, 2)", "pi = 2; give a share"),
        ("floor(FedAvg, FedAvg)", "pi = FedAvg; give a share"),
    ],
)
def test_bad_arguments_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        strategy(text)


def test_only_rules_on_the_simplex_can_be_capped() -> None:
    with pytest.raises(ValueError, match="off the simplex; only simplex rules can be capped"):
        cap(OffSimplex(), 0.5)
