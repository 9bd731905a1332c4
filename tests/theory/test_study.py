from __future__ import annotations

import csv
import json

import numpy as np

from fedalpha.strategies.switch import Switch
from fedalpha.theory.monte_carlo import simulate
from fedalpha.theory.problems import quadratics
from fedalpha.theory.study import verifiable_strategies, verify

EARLY = ["switch(FedWorse, FedAvg, at=2)", "switch(FedBetter, FedAvg, at=3)", "anneal(FedWorse, FedAvg, rounds=4)"]


def test_no_violation_on_sixty_random_problems() -> None:
    """All strategies, all statements; the long version is ``fedalpha theory --verify 400``."""
    rules = [r for r in verifiable_strategies(all_examples=False) if not isinstance(r, Switch)] + EARLY
    result = verify(60, rules, rounds=4, replicas=48, noisy=0.07)
    assert result.violations == 0
    rows = {row["statement"]: row for row in result.rows(by_strategy=False)}
    assert len(rows) == 15  # also the Worse family, a switch and unequal work
    assert result.runs >= 60 * len(rules)
    assert all(rows[s]["comparisons"] > 3_000 for s in ("exact step", "Theorem 1, corrected", "Theorem 1, paper"))
    assert rows["exact step"]["median_ratio"] < 1.5  # tight enough to mean something


def test_results_are_saved(tmp_path) -> None:
    verify(2, ["FedAvg", "FedSoftWorse(T=0.2)"], rounds=4).save(tmp_path, seed=0)
    summary = json.loads((tmp_path / "verification.json").read_text(encoding="utf-8"))
    assert summary["violations"] == 0
    assert summary["problems"] == 2
    with open(tmp_path / "verification.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {"FedAvg", "FedSoftWorse(T=0.2)"} <= {row["strategy"] for row in rows}


def test_verifiable_strategies_know_their_weights_before_training() -> None:
    texts = [str(rule) for rule in verifiable_strategies()]
    assert "FedAvg" in texts
    assert "fade(FedWorse)" in texts
    assert not any("loss=after" in text for text in texts)


def test_fedworse_is_faster_first_and_then_stuck() -> None:
    """Γ > 0, on this problem (it is no general law): a third of FedAvg's distance at t = 5, 1000 times at t = 500."""
    problem = quadratics(sigma=1)
    average, worse = (
        simulate(problem, text, rounds=500, replicas=8).distance.mean(1) for text in ("FedAvg", "FedWorse")
    )
    assert worse[5] < average[5] / 3
    assert worse[500] > 1000 * average[500]
    assert average[500] < 5e-4


def test_without_heterogeneity_fedworse_is_ahead_early_and_behind_late() -> None:
    """Γ = 0 with noise: the worst client alone carries all noise (Σ alpha² = 1), FedAvg a tenth of it."""
    problem = quadratics(seed=1, n=10, spread=0, sigma=1, equal=True)
    rules = ("FedAvg", "FedWorse", "steady(FedWorse, 0.5)")
    average, worse, steady = (simulate(problem, text, rounds=400, replicas=16).distance.mean(1) for text in rules)
    assert worse[20] < average[20] / 3
    assert 3 < worse[400] / average[400] < 15
    assert steady[20] < average[20] / 1.5  # variance-aware weights keep a part of the lead …
    assert steady[400] < worse[400] / 2  # … at a fraction of the noise


def test_hybrids_reach_the_optimum() -> None:
    problem = quadratics(sigma=0.5)
    for text in (
        "switch(FedWorse, FedAvg, at=40)",
        "fade(FedWorse)",
        "cool(FedSoftWorse(T=0))",
        "cool(FedSoftBetter(T=0))",
    ):
        run = simulate(problem, text, rounds=400, replicas=4)
        assert run.gap[-1].mean() < 2e-3
    stuck = simulate(problem, "FedWorse", rounds=400, replicas=4)
    assert np.isclose(stuck.gap[-1].mean(), stuck.gap[-100].mean(), rtol=0.1)
    assert stuck.gap[-1].mean() > 0.1
