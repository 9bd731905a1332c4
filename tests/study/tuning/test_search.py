"""Searches: budgets, fresh seeds, and settings that are found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from fedalpha.study.tuning.samplers import SAMPLERS, propose
from fedalpha.study.tuning.search import GENERATIONS, Search
from fedalpha.study.tuning.spaces import Point, Space

LR = Space.of({"lr": "log(0.001, 10)"})


def asks(sampler: str = "tpe") -> Callable[..., list[Point]]:
    def ask(space: Space, count: int, told: Sequence[Any], generation: int) -> list[Point]:
        return propose(space, count, told, sampler, 0, generation)

    return ask


def play(search: Search, score: Callable[[Point, int], float]) -> dict[int, int]:
    """Play a search. Returns the number of runs on each seed."""
    runs: dict[int, int] = {}
    while (step := search.wanted())[1]:
        seed, points = step
        assert seed not in runs
        runs[seed] = len(points)
        search.add(seed, {name: score(point, seed) for name, point in points.items()})
    return runs


def peaked(point: Point, seed: int) -> float:
    """Best at lr = 0.1; seeds differ in how hard they are, and points in noise."""
    rng = np.random.default_rng([seed, int(1e6 * point["lr"])])
    hard = np.random.default_rng(seed).standard_normal()
    return float(-((np.log10(point["lr"]) + 1) ** 2) + hard + 0.05 * rng.standard_normal())


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_peak_is_found_within_the_budget(sampler: str) -> None:
    search = Search(LR, 100, 1000, lambda p: f"lr={p['lr']}", asks(sampler))
    runs = play(search, peaked)
    assert sum(runs.values()) == search.spent <= 100
    assert list(runs) == list(range(1000, 1000 + len(runs)))
    assert 0.03 < search.best[1]["lr"] < 0.3
    assert len(search.generations) == GENERATIONS


def test_every_generation_has_seeds_of_its_own_and_meets_the_best_so_far() -> None:
    search = Search(LR, 100, 0, lambda p: f"lr={p['lr']}", asks())
    play(search, peaked)
    seeds = [seed for g in search.generations for seed in g.race.seeds]
    assert len(seeds) == len(set(seeds))
    for earlier, later in zip(search.generations[:-2], search.generations[1:-1], strict=True):
        assert earlier.race.leader in later.points


def test_a_search_is_the_same_again_and_when_it_is_resumed() -> None:
    first, again = (Search(LR, 60, 0, lambda p: f"lr={p['lr']}", asks()) for _ in range(2))
    play(first, peaked)
    play(again, peaked)

    def fails(*_: Any) -> list[Point]:
        raise AssertionError("proposed again")

    resumed = Search(LR, 60, 0, lambda p: f"lr={p['lr']}", fails, proposed=[g.new for g in first.generations])
    play(resumed, peaked)
    assert first.best == again.best == resumed.best
    assert [list(g.points) for g in first.generations] == [list(g.points) for g in resumed.generations]


def test_a_bad_candidate_leaves_its_runs_to_the_others() -> None:
    space = Space.of({"lr": [0.1, 0.11, 1e-9]})
    search = Search(space, 60, 0, lambda p: f"lr={p['lr']}", asks())
    runs = play(search, lambda p, seed: peaked(p, seed) if p["lr"] > 1e-6 else -1000.0 + seed)
    assert search.generations[0].race.dropped["lr=1e-09"].seeds < 6
    assert sum(runs.values()) > 50
    assert len(search.generations) == 1


def test_nothing_to_search_costs_nothing() -> None:
    search = Search(Space.of({"strategy": "FedAvg"}), 5, 0, lambda p: "FedAvg", asks())
    assert search.wanted()[1] == {}
    assert search.best[0] == "FedAvg"


@pytest.mark.parametrize("space", [LR, Space.of({"lr": [0.1, 0.2, 0.3]})])
def test_a_budget_that_is_too_small_is_refused(space: Space) -> None:
    needed = Search.needed(space.size)
    Search(space, needed, 0, lambda p: f"lr={p['lr']}", asks())
    with pytest.raises(ValueError, match=f"at least {needed} runs"):
        Search(space, needed - 1, 0, lambda p: f"lr={p['lr']}", asks())
