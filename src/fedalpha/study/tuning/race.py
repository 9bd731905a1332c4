"""A race: candidates on the same seeds, one seed at a time; a candidate is dropped as soon as the evidence says so.

**The rule.** W_ij is the evidence that j is ahead of i (`fedalpha.analysis.anytime`), a process that is valid
after every seed. The evidence against i is the mean of W_ij over all other candidates j. i is dropped when this mean
reaches 1/error. The leader, the candidate with the best mean, is never dropped. The evidence from a candidate that no
longer runs does not change.

**The guarantee.** Call a candidate *best* if no other one is ahead of it. For a best candidate every W_ij is a
nonnegative supermartingale that starts at 1, and so is their mean. By Ville's inequality

    P(a given best candidate is ever dropped) ≤ error,

for any number of candidates and seeds: the mean over the others is the correction for their number. (It never needs
more evidence than Bonferroni's correction, because a mean of K − 1 terms is at least the largest one over K − 1.)

**A winner** is the last candidate in the race. It is *false* if another candidate is at least as good. If exactly one
candidate is best, a false winner means that this one was dropped: P ≤ error. If k ≥ 2 candidates are best (a null race:
all of them), every winner is false and at least k − 1 of the best were dropped. The expected number of dropped ones
among them is at most k·error, so by Markov's inequality P ≤ k·error/(k − 1) ≤ 2·error. `Race` therefore gets half
of the error that a declared winner may have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedalpha.analysis.anytime import Evidence

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Drop:
    """A candidate left the race after ``seeds`` seeds; ``behind`` is the one with the most evidence against it."""

    name: str
    seeds: int
    behind: str


class Race:
    """Takes scores and drops candidates. Higher scores are better.

    ``keeps`` is a candidate that continues to run after it was dropped.

    >>> race = Race(["a", "b"], error=0.2)
    >>> [race.add(seed, {"a": 0.7 + seed / 100, "b": 0.5}) for seed in range(3)]
    [[], [], [Drop(name='b', seeds=3, behind='a')]]
    >>> race.winner
    'a'
    """

    def __init__(self, names: Sequence[str], error: float, at_least: int = 1, keeps: str | None = None) -> None:
        if len(set(names)) < len(names) or not names:
            raise ValueError(f"the candidates of a race need different names, and at least one: {list(names)}")
        self.names = tuple(names)
        self.error, self.at_least, self.keeps = error, at_least, keeps
        self.seeds: list[int] = []
        self.dropped: dict[str, Drop] = {}
        self._scores: Array = np.empty((0, len(names)))
        self._evidence = Evidence()
        self.wealth: Array = np.zeros((len(names), len(names)))
        """W_ij, the evidence that j is ahead of i; 0 on the diagonal."""

    @property
    def alive(self) -> list[str]:
        return [name for name in self.names if name not in self.dropped]

    @property
    def running(self) -> list[str]:
        """The candidates whose score the next seed needs."""
        return [name for name in self.names if name not in self.dropped or name == self.keeps]

    @property
    def winner(self) -> str | None:
        """The last candidate in the race."""
        return self.alive[0] if len(self.alive) == 1 < len(self.names) else None

    @property
    def leader(self) -> str:
        """The best mean among those that were not dropped; the first of equals."""
        return max(self.alive, key=lambda name: float(np.mean(self.scores(name))) if self.seeds else 0.0)

    def scores(self, name: str) -> Array:
        """The scores of a candidate, seed by seed, as long as it ran."""
        column = self._scores[:, self.names.index(name)]
        found: Array = column[~np.isnan(column)]
        return found

    def differences(self, name: str, other: str) -> Array:
        """The scores of ``name`` minus those of ``other`` on the seeds that both have."""
        a, b = self.scores(name), self.scores(other)
        common = min(len(a), len(b))  # every candidate starts with the first seed and runs without gaps
        return a[:common] - b[:common]

    def add(self, seed: int, scores: Mapping[str, float]) -> list[Drop]:
        """One more seed: a score for each running candidate. Returns the candidates that are dropped now."""
        if set(scores) != set(self.running):
            raise ValueError(f"seed {seed}: scores of {sorted(scores)}, but {sorted(self.running)} are running")
        if not all(np.isfinite(value) for value in scores.values()):
            raise ValueError(f"seed {seed}: a score is not a finite number: {dict(scores)}")
        self.seeds.append(seed)
        row = np.array([scores.get(name, np.nan) for name in self.names])
        self._scores = np.vstack([self._scores, row])
        self.wealth = self._evidence.add(np.nan_to_num(row[None, :] - row[:, None]))
        np.fill_diagonal(self.wealth, 0.0)
        if len(self.seeds) < self.at_least or len(self.alive) == 1:
            return []
        against = self.wealth.sum(axis=1) / (len(self.names) - 1)
        alive, leader = self.alive, self.leader
        drops = [
            Drop(name, len(self.seeds), self.names[int(self.wealth[i].argmax())])
            for i, name in enumerate(self.names)
            if name in alive and name != leader and against[i] >= 1 / self.error
        ]
        self.dropped |= {drop.name: drop for drop in drops}
        return drops
