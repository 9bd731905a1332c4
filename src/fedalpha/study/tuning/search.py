"""The search of one method: races of its points on tuning seeds, within a budget of runs.

A space with few points is one race of all of them. Any other space is searched in *generations*: a sampler proposes
points, which race against the best point so far on seeds that no earlier generation has seen (the sampler chose the
points by the earlier scores, so on the earlier seeds a difference would not be independent of that choice). The last
generation proposes no points: the best points of all others race on fresh seeds, because the best of many noisy scores
overestimates its point.

Every method has the same budget. The runs that an early dropped candidate does not use are available to the others and
to the next generations. A race that has one candidate left costs no more runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedalpha.study.tuning.race import Drop, Race
from fedalpha.study.tuning.spaces import Point, Space

Propose = Callable[[Space, int, Sequence[tuple[Point, float]], int], list[Point]]
"""(space, how many, points with values so far, generation) → new points."""

GENERATIONS = 4
FINALISTS = 4
LEAST = 2
"""The number of seeds for which the budget of a generation must suffice with all of its candidates."""


@dataclass(eq=False)
class Generation:
    """One race of a search: candidates by name."""

    points: dict[str, Point]
    race: Race
    runs: int
    """The number of runs that it may use."""
    new: list[Point] = field(default_factory=list)
    """The points that no earlier generation had."""
    spent: int = 0

    @property
    def over(self) -> bool:
        return len(self.race.alive) == 1 or self.spent + len(self.race.running) > self.runs


@dataclass(eq=False)
class Search:
    """Ask `wanted` for the next seed and its candidates and `add` their scores, until no candidate is wanted.

    ``runs`` is the budget; ``name`` gives the text of a point; ``error`` is the probability with which a race may
    drop its best candidate; ``proposed`` are the points of earlier generations of a search that is resumed.
    """

    space: Space
    runs: int
    first_seed: int
    name: Callable[[Point], str]
    propose: Propose
    error: float = 0.2
    candidates: int = 8
    proposed: Sequence[Sequence[Point]] = ()
    generations: list[Generation] = field(default_factory=list)
    values: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        size = self.space.size
        self._whole = size is not None and size * LEAST <= self.runs
        self._each = self.runs // (1 if self._whole else GENERATIONS)
        self._width = min(self.candidates, self._each // LEAST)
        if size != 1 and self._width < 2:
            raise ValueError(
                f"{self.runs} runs are too few to search {size or 'infinitely many'} points; give a budget of at "
                f"least {self.needed(size)} runs"
            )
        if size == 1:
            only = next(iter(self.space.points()))
            self.generations.append(Generation({self.name(only): only}, Race([self.name(only)], self.error), 0))
        else:
            self._begin()

    @staticmethod
    def needed(size: int | None) -> int:
        """The smallest number of runs with which a space can be searched."""
        return min(2 * LEAST * GENERATIONS, LEAST * size if size else 2 * LEAST * GENERATIONS)

    @property
    def spent(self) -> int:
        return sum(generation.spent for generation in self.generations)

    @property
    def seeds(self) -> int:
        """The number of tuning seeds so far."""
        return sum(len(generation.race.seeds) for generation in self.generations)

    @property
    def best(self) -> tuple[str, Point]:
        """The winner of the last race, or its leader."""
        last = self.generations[-1]
        return last.race.leader, last.points[last.race.leader]

    def wanted(self) -> tuple[int, dict[str, Point]]:
        """The next seed, and the points that need a score there; no points when the search is over."""
        last = self.generations[-1]
        names = [] if last.over else last.race.running
        return self.first_seed + self.seeds, {name: last.points[name] for name in names}

    def add(self, seed: int, scores: dict[str, float]) -> list[Drop]:
        """The scores of the points that were wanted."""
        last = self.generations[-1]
        drops = last.race.add(seed, scores)
        last.spent += len(scores)
        if last.over:
            self._tell(last)
            if not self._whole and len(self.generations) < GENERATIONS:
                self._begin()
        return drops

    def _begin(self) -> None:
        number = len(self.generations)
        final = not self._whole and number == GENERATIONS - 1
        ranked = sorted(self.values, key=lambda name: -self.values[name])
        known = {name: point for g in self.generations for name, point in g.points.items()}
        chosen: dict[str, Point] = {}
        if final:
            best = self.best[0]
            chosen = {name: known[name] for name in dict.fromkeys([best, *ranked[:FINALISTS]])}
        elif number:
            chosen = dict([self.best])
        runs = self.runs - self.spent if self._whole or final else self._each * (number + 1) - self.spent
        new = [] if final else list(self._new(number, self._width - len(chosen), known))
        chosen |= {self.name(point): point for point in new}
        chosen = dict(itertools.islice(chosen.items(), max(1, runs // LEAST)))
        self.generations.append(Generation(chosen, Race(list(chosen), self.error), runs, new))
        if self.generations[-1].over and not self._whole and not final:
            self._begin()

    def _new(self, number: int, count: int, known: dict[str, Point]) -> Sequence[Point]:
        if self._whole:
            return list(self.space.points())
        if number < len(self.proposed):
            return self.proposed[number]
        told = [(known[name], value) for name, value in self.values.items()]
        return self.propose(self.space, count, told, number)

    def _tell(self, over: Generation) -> None:
        """The value of every point: its mean difference to the best point so far on the same seeds, plus that
        point's value, so that generations with easy and with hard seeds can be compared."""
        race = over.race
        anchor = next((name for name in race.names if name in self.values), race.leader)
        base = self.values.get(anchor, float(np.mean(race.scores(anchor))))
        for name in race.names:
            difference = float(np.mean(race.differences(name, anchor)))
            self.values.setdefault(name, base + difference)
