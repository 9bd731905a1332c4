"""Tolerance: the thresholds of the threat model, and that no lie gets more than what is said to be possible."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedalpha
from fedalpha.combine import COMBINES
from fedalpha.data import Pooled
from fedalpha.defence.tolerance import influence, tolerance
from fedalpha.runs.evaluate import Evaluate
from fedalpha.strategies import STRATEGIES, Array, Cohort, State, Strategy


@pytest.mark.parametrize("f", [1, 2, 3, 5])
def test_the_table_of_the_threat_model(f: int) -> None:
    n, R = 20, 0.7
    assert tolerance("FedWorse", n, combine="median").liars == 0
    assert tolerance("FedBetter", n, combine="median").liars == 0
    assert tolerance(f"FedWorse(k={2 * f + 1})", n, combine="median").liars == f
    assert tolerance(f"FedBetter(k={2 * f})", n, combine="median").liars == f - 1
    edge = R / math.log((n - f) / f)
    assert tolerance(f"FedSoftWorse(T={edge * 1.001}, prior=uniform)", n, combine="geomed", width=R).liars >= f
    assert tolerance(f"FedSoftWorse(T={edge * 0.999}, prior=uniform)", n, combine="geomed", width=R).liars == f - 1
    assert tolerance("FedSoftBetter(T=0.2)", n, combine="geomed").liars == 0
    c = 1 / (2 * f)
    if 0.99 * c >= 1 / n:
        assert tolerance(f"cap(FedSoftBetter(T=0.2), {0.99 * c})", n, combine="median").liars >= f
    assert tolerance(f"cap(FedSoftBetter(T=0.2), {c})", n, combine="median").liars == f - 1


def test_the_combine_rule_matters() -> None:
    assert tolerance("FedAvg", 20).liars == 0
    assert tolerance("FedAvg", 20, combine="trimmed(beta=0.2)").liars == 4
    assert tolerance("FedAvg", 20, combine="median").liars == 9
    assert tolerance("FedAvg", 20, combine="krum(f=3)").liars == 3
    assert tolerance("FedAvg", 6, combine="krum(f=3)").liars == 1
    assert tolerance("FedAvg", 20, combine="nnm(median, f=2)").liars == 2
    clipped = tolerance("FedAvg", 20, combine="clip(mean, C=3)")
    assert clipped.liars == 9
    assert math.isclose(clipped.bound(2), 2 * 0.1 * 3)
    assert tolerance("FedAvg", 20, combine="median").bound(1) == math.inf
    assert tolerance("FedAvg", 4, sizes=[97, 1, 1, 1], combine="median").liars == 0


TEXTS = (
    "FedAvg",
    "FedWorse(k=3)",
    "FedSoftWorse(T=0.5)",
    "FedSoftBetter(T=2, prior=uniform)",
    "cap(FedSoftWorse(T=0.1), 0.3)",
    "floor(FedBetter, 0.5)",
    "mix(FedWorse(k=2), FedAvg)",
    "anneal(FedSoftWorse(T=0.2), FedAvg, rounds=5)",
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(TEXTS), st.integers(0, 10**6), st.integers(1, 3))
def test_no_lie_gets_more_than_what_is_possible(text: str, seed: int, f: int) -> None:
    rng = np.random.default_rng(seed)
    n, width = 8, 1.5
    losses = rng.uniform(0, width, n)
    losses[:f] = rng.choice([0.0, width], f)
    cohort = Cohort(np.arange(n), rng.integers(1, 9, n).astype(float), round=int(rng.integers(0, 6)), before=losses)
    rule = STRATEGIES.parse(text)
    alpha, _ = rule.weights(rule.init(n), cohort)
    assert alpha[:f].sum() <= rule.possible(cohort, f, width) + 1e-9


SUPPORTED = (*TEXTS, "cap(FedWorse(k=2), 0.2)", "clipped(FedSoftWorse(T=1.0))", "switch(FedWorse(k=3), FedAvg, at=3)")


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(SUPPORTED), st.integers(0, 10**6), st.sampled_from([1.5, 1e9]))
def test_no_lie_leaves_fewer_clients_with_weight_than_the_support(text: str, seed: int, width: float) -> None:
    rng = np.random.default_rng(seed)
    losses = rng.choice([0.0, 0.5 * width, width], 8)
    cohort = Cohort(np.arange(8), rng.integers(1, 9, 8).astype(float), round=int(rng.integers(0, 6)), before=losses)
    rule = STRATEGIES.parse(text)
    alpha, _ = rule.weights(rule.init(8), cohort)
    assert (alpha > 0).sum() >= rule.support(8, width)


class Silent(Strategy):
    """A rule that says nothing about its bounds."""

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        return cohort.prior("size"), state


@pytest.mark.parametrize("combine", ["mean", "median", "trimmed(beta=0.2)", "krum(f=2)", "clip(mean, C=1)", "geomed"])
def test_a_rule_that_promises_nothing_is_trusted_with_nothing(combine: str) -> None:
    assert tolerance(Silent(), 20, combine=combine).liars == 0
    with pytest.raises(ValueError, match="weights of others"):
        Silent().sensitivity(1.0)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3), st.floats(1.0, 1e12))
def test_clipped_losses_bound_what_a_lie_gets(seed: int, f: int, lie: float) -> None:
    rng = np.random.default_rng(seed)
    losses = np.concatenate([np.full(f, lie), rng.uniform(0, 1, 9 - f)])
    cohort = Cohort(np.arange(9), np.ones(9), before=losses)
    rule = STRATEGIES.parse("clipped(FedSoftWorse(T=1.0), k=1)")
    alpha, _ = rule.weights(rule.init(9), cohort)
    assert alpha[:f].sum() <= rule.possible(cohort, f) + 1e-9
    assert alpha[:f].sum() < 0.9


def test_the_history_states_the_influence(digits: Pooled) -> None:
    row = fedalpha.run(
        digits,
        "softmax",
        "cap(FedSoftWorse(T=0.2), 0.15)",
        rounds=1,
        engine="embedded(workers=1)",
        evaluate=Evaluate(liars=2),
        combine="clip(mean, C=2)",
    ).rows[1]
    found = row["influence"]
    assert found["clients"] == 2
    assert math.isclose(found["mass"], sum(sorted(row["alpha"])[-2:]))
    assert math.isclose(found["possible"], 0.3)
    assert math.isclose(found["bound"], 2 * 0.3 * 2)


@pytest.mark.parametrize(
    "text", ["FedAvg", "FedWorse(k=5)", "cap(FedSoftWorse(T=0.2), 0.2)", "clipped(FedSoftBetter(T=3))"]
)
def test_after_a_loss_no_lie_gets_more_than_what_is_called_possible(text: str) -> None:
    rule, rng = fedalpha.strategy(text), np.random.default_rng(0)
    for _ in range(200):
        honest = Cohort(np.arange(10), rng.uniform(1, 3, 10), before=rng.uniform(0, 2, 10))
        lies = rng.choice([0.0, 1.0, 1e9], 10)
        liars, lost = np.arange(2), rng.choice(np.arange(2, 10), 3, replace=False)
        lied = honest.replace(before=np.where(np.arange(10) < 2, lies, honest.before))
        alpha, _ = rule.weights(rule.init(10), lied)
        alpha[lost] = 0
        if not alpha.any():
            continue
        alpha = rule.renormalise(alpha)
        told = influence(rule, COMBINES.parse("clip(mean, C=1)"), lied, np.zeros(10), 2, lost=3)
        assert alpha[liars].sum() <= told.possible + 1e-12
        assert told.bound == 2 * told.possible
