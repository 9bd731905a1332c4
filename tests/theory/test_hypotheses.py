from __future__ import annotations

import re

import numpy as np
import pytest

from fedalpha.strategies import strategy
from fedalpha.theory.checks import checks, compare, switch_statement
from fedalpha.theory.hypotheses import hypotheses
from fedalpha.theory.monte_carlo import simulate
from fedalpha.theory.problems import Quadratics, quadratics

PROBLEM = quadratics(sigma=0.5)


def test_the_framework_breaks_nothing() -> None:
    for E in (1, 5, 40):
        assert hypotheses(simulate(PROBLEM, "switch(FedWorse, FedAvg, at=2)", E=E, rounds=4)) == []


@pytest.mark.parametrize(
    ("rule", "options", "word"),
    [
        ("FedWorse(loss=after)", {}, "gradient noise"),
        ("FedSoftBetter(T=1, loss=train)", {}, "gradient noise"),
        ("FedAvg", {"step": lambda t: np.full(np.shape(t), 0.3 / PROBLEM.constants.L)}, "1/\\(4L\\)"),
        ("FedAvg", {"step": lambda t: 0.001 * (1 + np.asarray(t))}, "increases"),
        ("FedAvg", {"step": lambda t: 0.01 / (0.5 + np.asarray(t) % 3)}, "more than half"),
        ("FedAvg", {"work": [1, 2, 3, 3, 3, 3]}, "different numbers"),
    ],
)
def test_each_breach_is_said_in_words(rule: str, options: dict, word: str) -> None:
    run = simulate(PROBLEM, rule, E=3, rounds=4, replicas=2, **options)
    assert any(re.search(word, sentence) for sentence in hypotheses(run))
    with pytest.raises(ValueError, match="do not apply"):
        checks(run)


def test_gradients_above_G2_are_noticed() -> None:  # noqa: N802
    wild = Quadratics(np.array([[[1.0]]]), np.zeros((1, 1)), np.zeros(1), np.ones(1))
    run = simulate(wild, "FedAvg", rounds=30, step=lambda t: np.full(np.shape(t), 3.0))
    assert any("G²" in sentence for sentence in hypotheses(run))


TWO = Quadratics(np.ones((2, 1, 1)), np.array([[1.0], [-1.0]]), np.zeros(2), np.array([3.0]), p=np.array([0.9, 0.1]))
"""Two clients ½(w ∓ 1)²."""
CENTRES = np.array([[1.0], [-1.0], [-2.0], [-3.0]])
FOUR = Quadratics(np.ones((4, 1, 1)), CENTRES, np.zeros(4), np.array([3.0]), p=np.array([0.7, 0.1, 0.1, 0.1]))


@pytest.mark.parametrize(
    ("rule", "near"),
    [
        ("switch(FedWorse, FedAvg, at=5)", 0.01),
        ("fade(FedWorse)", 0.01),
        ("cool(FedSoftWorse(T=0))", 0.01),
        ("temper(FedSoftWorse(T=0), 0.5)", 0.2),  # a bounded bias
    ],
)
def test_hybrids_need_weights_that_are_p_in_the_mean(rule: str, near: float) -> None:
    assert hypotheses(simulate(FOUR, rule, rounds=3)) == []
    half = simulate(FOUR, rule, rounds=200, replicas=32, fraction=0.5)
    (sentence,) = hypotheses(half)
    assert f"use unbiased({strategy(rule)}) and cohorts drawn by size" in sentence
    corrected = simulate(FOUR, f"unbiased({rule})", rounds=200, replicas=32, fraction=0.5, sampling="size")
    assert hypotheses(corrected) == []
    assert half.distance[-1].mean() > 0.4
    assert corrected.distance[-1].mean() < near


def test_a_switch_to_fedavg_is_checked_where_its_statement_applies() -> None:
    rule = "switch(FedWorse, FedAvg, at=5)"
    half = simulate(TWO, rule, rounds=100, replicas=64, fraction=0.5)
    (biased,) = compare(half, switch_statement(half))
    assert biased.violations > 0.8 * biased.comparisons
    assert "switch to FedAvg" not in {check.statement for check in checks(half)}
    corrected = simulate(TWO, f"unbiased({rule})", E=2, rounds=60, replicas=64, fraction=0.5, sampling="size")
    found = {check.statement: check.violations for check in checks(corrected)}
    assert found["switch to FedAvg"] == 0
    assert sum(found.values()) == 0


def test_equal_shares_and_uniform_cohorts_are_unbiased() -> None:
    even = Quadratics(np.ones((4, 1, 1)), np.array([[1.0], [-1.0], [2.0], [0.0]]), np.zeros(4), np.array([3.0]))
    run = simulate(even, "switch(FedWorse, FedAvg, at=5)", E=3, rounds=20, replicas=64, fraction=0.5)
    assert hypotheses(run) == []
    assert {check.statement: check.violations for check in checks(run)}["switch to FedAvg"] == 0


def test_gradients_at_the_averages_count() -> None:
    """FedWorse follows client 1; there client 0's gradient is larger than anywhere on its own path."""
    apart = Quadratics(np.ones((2, 1, 1)), np.array([[5.0], [-5.0]]), np.zeros(2), np.ones(1))
    run = simulate(apart, "FedWorse", E=12, rounds=1, step=lambda t: np.full(np.shape(t), 0.2))
    assert run.gradient2 > 36  # ‖∇F_1‖² at the start, the largest at a local iterate
