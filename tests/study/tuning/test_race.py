"""Races: who is dropped, who is not, and what a race refuses."""

from __future__ import annotations

import numpy as np
import pytest

from fedalpha.study.tuning.race import Race


def run(race: Race, scores: np.ndarray) -> Race:
    """Feed a table seeds × candidates until somebody has won."""
    for seed, row in enumerate(scores):
        if race.winner is None:
            race.add(seed, {name: row[race.names.index(name)] for name in race.running})
    return race


def test_the_same_rule_under_ten_names_has_no_winner() -> None:
    """Paired runs of one rule are equal to the bit."""
    race = run(Race([f"name {i}" for i in range(10)], 0.025), np.repeat(np.arange(100.0)[:, None], 10, axis=1))
    assert race.winner is None
    assert race.dropped == {}


def test_a_clear_winner_is_found_and_the_order_of_names_does_not_matter() -> None:
    scores = np.random.default_rng(0).standard_normal((40, 4)) + np.array([0, 0, 6, 0])
    first = run(Race("abcd", 0.025), scores)
    second = run(Race("dcba", 0.025), scores[:, ::-1])
    assert first.winner == second.winner == "c"
    assert {n: d.seeds for n, d in first.dropped.items()} == {n: d.seeds for n, d in second.dropped.items()}
    assert all(drop.behind == "c" for drop in first.dropped.values())
    assert 6 <= len(first.seeds) <= 15


def test_the_leader_is_never_dropped() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        race = run(Race("abcde", 0.9), rng.standard_normal((20, 5)))
        assert race.alive
        assert race.leader in race.alive


def test_nothing_is_dropped_before_at_least_seeds() -> None:
    scores = np.array([[i, 100.0 + i % 3] for i in range(12)])
    race = run(Race("ab", 0.1, at_least=9), scores)
    assert race.dropped["a"].seeds == 9


def test_the_reference_runs_on_after_it_was_dropped() -> None:
    rng = np.random.default_rng(2)
    scores = np.c_[rng.standard_normal(30), 20 + rng.standard_normal((30, 2))]
    race = run(Race(["reference", "a", "b"], 0.05, keeps="reference"), scores)
    assert "reference" in race.dropped
    assert len(race.scores("reference")) == len(race.seeds) > race.dropped["reference"].seeds


def test_evidence_of_a_candidate_that_left_stays() -> None:
    race = Race("abc", 0.05)
    for seed in range(5):
        race.add(seed, {"a": 0.0, "b": 5.0 + seed % 2, "c": 5.0 + (seed + 1) % 2})
    assert "a" in race.dropped
    before = race.wealth[0, 1]
    race.add(5, {"b": 1.0, "c": 2.0})
    assert race.wealth[0, 1] == pytest.approx(before)


def test_wrong_scores_are_refused() -> None:
    race = Race("ab", 0.05)
    with pytest.raises(ValueError, match="are running"):
        race.add(0, {"a": 1.0})
    with pytest.raises(ValueError, match="not a finite number"):
        race.add(0, {"a": 1.0, "b": float("nan")})
    with pytest.raises(ValueError, match="different names"):
        Race("aa", 0.05)
