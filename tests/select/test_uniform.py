"""Uniform selection: size, order, chance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedalpha.select import SELECTIONS, uniform


class Crowd:
    def __init__(self, clients: int) -> None:
        self.clients = clients

    def named(self, places: np.ndarray) -> np.ndarray:
        return places

    def sizes(self, ids):  # type: ignore[no-untyped-def]
        return np.ones(len(ids))

    def optima(self, ids) -> None:  # type: ignore[no-untyped-def]
        return None


def choose(rule: uniform, n: int, seed: int = 0) -> list[int]:
    ids, state = rule.select(rule.init(n), Crowd(n), None, np.random.default_rng(seed))
    assert state == {}
    return ids.tolist()


@given(st.integers(1, 500), st.floats(0.001, 1))
def test_ids_are_sorted_distinct_and_as_many_as_the_paper_says(n: int, C: float) -> None:
    ids = choose(uniform(C=C), n)
    assert ids == sorted(set(ids))
    assert len(ids) == max(1, int(np.floor(C * n + 1e-9)))
    assert 0 <= ids[0] <= ids[-1] < n


def test_rounding_does_not_lose_a_client() -> None:
    assert uniform(C=0.29).size(100) == 29  # 0.29 · 100 is 28.999999999999996


def test_everybody_by_default_and_a_count() -> None:
    assert choose(uniform(), 7) == list(range(7))
    assert len(choose(uniform(count=3), 7)) == 3
    assert choose(uniform(count=30), 7) == list(range(7))


def test_every_client_is_as_likely_as_another() -> None:
    counts = np.zeros(10)
    for seed in range(2000):
        counts[choose(uniform(count=3), 10, seed)] += 1
    assert abs(counts - 600).max() < 5 * np.sqrt(2000 * 0.3 * 0.7)


@pytest.mark.parametrize("text", ["uniform(C=0)", "uniform(C=1.5)", "uniform(count=0)"])
def test_wrong_settings_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="give"):
        SELECTIONS.parse(text)
