"""The paper's pure strategies against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedalpha
from fedalpha.strategies import Cohort, FedAvg, FedBetter, FedSoftBetter, FedSoftWorse, FedWorse, strategy

LN2, LN3 = math.log(2), math.log(3)


def weights(text: str, losses: list[float], sizes: list[float] | None = None, **rest) -> list[float]:
    return fedalpha.weights(text, losses, sizes, **rest).tolist()


@pytest.mark.parametrize(
    ("text", "losses", "sizes", "expected"),
    [
        # p alone, whatever the losses
        ("FedAvg", [5, 1, 2], [10, 30, 60], [0.1, 0.3, 0.6]),
        ("FedAvg", [5, 1, 2], [0.5, 0, 1.5], [0.25, 0, 0.75]),
        ("FedAvg(prior=uniform)", [5, 1], [10, 30], [0.5, 0.5]),
        ("FedAvg", [5, 1], None, [0.5, 0.5]),
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


@pytest.mark.parametrize(("k", "m", "count"), [(0.29, 100, 29), (0.1, 30, 3), (0.7, 10, 7), (0.3, 10, 3), (0.2, 9, 1)])
def test_fractions_are_not_lost_to_rounding(k: float, m: int, count: int) -> None:
    """0.29·100 is 28.999… in float64: ⌊k·m + 1e-9⌋ is 29."""
    assert FedWorse(k=k).count(m) == count
    assert np.count_nonzero(fedalpha.weights(FedWorse(k=k), losses=np.arange(m))) == count


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


@pytest.mark.parametrize(("loss", "winner"), [("before", 0), ("train", 1), ("after", 2)])
@pytest.mark.parametrize("name", ["FedWorse", "FedSoftWorse", "FedBetter", "FedSoftBetter"])
def test_each_loss_is_the_one_that_was_asked_for(name: str, loss: str, winner: int) -> None:
    high = np.eye(3) if name.endswith("Worse") else 1 - np.eye(3)
    members = Cohort(ids=np.arange(3), sizes=np.ones(3), before=high[0], train=high[1], after=high[2])
    rule = strategy(f"{name}(loss={loss})")
    assert rule.requires == {loss}
    assert rule.weights(rule.init(3), members)[0].argmax() == winner


def test_before_is_the_default_loss() -> None:
    assert FedSoftWorse().requires == FedBetter().requires == {"before"}
    assert FedAvg().requires == frozenset()


def test_known_optima_are_subtracted() -> None:
    # x = (0, ln 2) though the raw losses are equal, or ordered the other way
    assert weights("FedSoftWorse(T=1)", [3, 3], [1, 1], optima=[3, 3 - LN2]) == pytest.approx([1 / 3, 2 / 3])
    assert weights("FedWorse", [5, 1], [1, 1], optima=[5, 0]) == [0, 1]
    assert weights("FedBetter", [5, 1], [1, 1], optima=[5, 0]) == [1, 0]
    assert weights("FedAvg", [5, 1], [1, 1], optima=[5, 0]) == [0.5, 0.5]


def test_estimated_optima_are_the_lowest_losses_so_far() -> None:
    rule = strategy("FedSoftWorse(T=1, optima=estimated)")

    def play(state, ids: list[int], losses: list[float]):
        return rule.weights(state, Cohort(ids=ids, sizes=np.ones(len(ids)), before=losses, optima=np.full(len(ids), 9)))

    alpha, first = play(rule.init(None), [7, 3], [5.0, 1.0])
    assert alpha.tolist() == [0.5, 0.5]  # nobody has an excess in its first round
    alpha, second = play(first, [3, 7], [1.0, 5.0 + LN2])
    assert alpha == pytest.approx([1 / 3, 2 / 3])  # 7 was at 5
    alpha, third = play(second, [5, 3], [100.0, 0.5])
    assert alpha.tolist() == [0.5, 0.5]  # 5 is new, 3 improved
    alpha, fourth = play(third, [3, 5, 7], [0.5 + LN3, 100.0, 5.0])
    assert alpha == pytest.approx([3 / 5, 1 / 5, 1 / 5])  # 3 is judged by 0.5 now
    assert fourth["ids"].tolist() == [3, 5, 7]
    assert fourth["values"].tolist() == [0.5, 100.0, 5.0]
    assert first["ids"].tolist() == [3, 7]  # old states stay as they were


def test_an_excess_beyond_float64_is_refused() -> None:
    with pytest.raises(ValueError, match="overflows float64; rescale"):
        weights("FedSoftWorse", [1.7e308, 0], optima=[-1.7e308, 0])
    rule = FedSoftWorse(optima="estimated")
    low, high = (Cohort(ids=[0, 1], sizes=[1, 1], before=[b, 0.0]) for b in (-1.7e308, 1.7e308))
    _, state = rule.weights(rule.init(2), low)
    with pytest.raises(ValueError, match="overflows float64; rescale"):
        rule.weights(state, high)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FedSoftWorse(T=-1)", "T = -1; the temperature is a number ≥ 0"),
        ("FedSoftWorse(T=nan)", "T = nan; the temperature"),
        ("FedSoftWorse(T=true)", "T = True; the temperature"),
        ("FedSoftBetter(T=cold)", "T = 'cold'; the temperature"),
        ("FedWorse(k=0)", "k = 0; give a count .* or a fraction"),
        ("FedWorse(k=-3)", "k = -3; give a count"),
        ("FedWorse(k=0.0)", "k = 0.0; give a count"),
        ("FedWorse(k=nan)", "k = nan; give a count"),
        ("FedWorse(k=true)", "k = True; give a count"),
        ("FedBetter(k=1.5)", "k = 1.5 is a fraction above 1; write a whole number"),
        ("FedBetter(k=inf)", "k = inf is a fraction above 1; write a whole number"),
        ("FedAvg(prior=sise)", "prior = 'sise' is not one of size, uniform"),
        ("FedSoftWorse(prior=1)", "prior = 1 is not one of size, uniform"),
        ("FedWorse(loss=during)", "loss = 'during' is not one of before, train, after"),
        ("FedSoftBetter(optima=guessed)", "optima = 'guessed' is not one of known, estimated"),
    ],
)
def test_bad_parameters_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        strategy(text)


def test_a_temperature_beyond_float64_is_refused() -> None:
    with pytest.raises(ValueError, match="T is beyond float64; write T=inf"):
        FedSoftWorse(T=10**400)
