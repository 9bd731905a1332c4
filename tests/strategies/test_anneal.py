"""`anneal` by hand: mixtures and temperatures."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cohorts import weights
from fedalpha.strategies import (
    Cohort,
    anneal,
    strategy,
)


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("anneal(FedAvg, FedWorse, rounds=0)", "rounds = 0; give a whole number"),
        ("anneal(FedAvg, FedWorse, rounds=2.0)", "rounds = 2.0; give a whole number"),
        ("anneal(FedAvg, FedWorse, schedule=steep)", "'steep' is not one of linear, cosine"),
        ("anneal(FedAvg)", "either a second rule .* or T="),
        ("anneal(FedSoftWorse, FedAvg, T=1)", "either a second rule .* or T="),
        ("anneal(FedAvg, T=1)", "only the soft rules have a temperature, FedAvg has none"),
        ("anneal(FedSoftWorse, T=-1)", "the temperature is a number ≥ 0"),
        ("anneal(FedSoftWorse, T=0)", "both temperatures must be above 0"),
        ("anneal(FedSoftWorse(T=0), T=1)", "both temperatures must be above 0"),
    ],
)
def test_bad_arguments_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        strategy(text)
