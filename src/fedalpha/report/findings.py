"""The results of a study's folder: curves and summaries, only from stored rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedalpha.analysis.columns import stored
from fedalpha.analysis.comparison import Summary, summarise
from fedalpha.analysis.measures import Curve, Measure
from fedalpha.study import Cell, Result, Store, Study, load_study


@dataclass(frozen=True, eq=False)
class Findings:
    """A study with the stored results; ``results`` by the cell's key."""

    study: Study
    cells: list[Cell]
    store: Store
    results: dict[str, Result]

    @cached_property
    def cases(self) -> list[str]:
        return list(self.study.variations())

    def of(self, case: str) -> dict[str, dict[int, Result]]:
        """Results by strategy and seed; strategies without results are included."""
        found: dict[str, dict[int, Result]] = {strategy: {} for strategy in self.study.names}
        for cell in self.cells:
            if cell.case == case and cell.key in self.results:
                found[cell.strategy][cell.seed] = self.results[cell.key]
        return found

    def curves(self, case: str) -> dict[str, dict[int, Curve]]:
        """Curves by strategy and seed, for the strategies that have results."""
        rounds = {cell.key: cell.settings.rounds for cell in self.cells}
        numbers = {
            strategy: {seed: Curve.of(_numbers(r), rounds[r.key]) for seed, r in by_seed.items()}
            for strategy, by_seed in self.of(case).items()
        }
        return {strategy: by_seed for strategy, by_seed in numbers.items() if by_seed}

    def summaries(self, case: str) -> dict[str, list[Summary]]:
        """Every measure of the study."""
        runs = self.curves(case)
        measures = self.study.measures if runs else ()
        return {m: summarise(runs, Measure.parse(m), self.study.against) for m in measures}

    def coinciding(self, case: str) -> list[tuple[str, str, int, int]]:
        """Strategies with cells that are twins of another's: (strategy, the other, how many seeds, of how many)."""
        names = {cell.key: cell.strategy for cell in self.cells}
        found = []
        for strategy, by_seed in self.of(case).items():
            keys = [r.about["coincides_with"] for r in by_seed.values() if "coincides_with" in r.about]
            twins = Counter(names.get(key, "cells outside this study") for key in keys)
            found += [(strategy, twin, count, len(by_seed)) for twin, count in twins.items()]
        return found

    def sharing(self, case: str) -> dict[str, tuple[str, int]]:
        """Strategies that share their first rounds with another: (the other, number of rounds)."""
        by_key = {cell.key: cell for cell in self.cells}
        found: dict[str, tuple[str, int]] = {}
        for strategy, by_seed in self.of(case).items():
            for result in by_seed.values():
                shares = result.about.get("shares")
                if shares and shares["cell"] in by_key:
                    found[strategy] = (by_key[shares["cell"]].strategy, shares["rounds"])
        return found

    def versions(self) -> list[dict[str, str]]:
        """The distinct sets of versions that cells were run with."""
        distinct: dict[str, dict[str, str]] = {}
        for result in self.results.values():
            versions = result.about["versions"]
            distinct[str(sorted(versions.items()))] = versions
        return list(distinct.values())


def gather(folder: str | Path) -> Findings:
    """Read a study's folder."""
    study, cells, store = load_study(folder)
    results = {cell.key: store.get(cell.key) for cell in cells if store.has(cell)}
    return Findings(study, cells, store, results)


def _numbers(result: Result) -> dict[str, list[Any]]:
    return {found.name: result.columns[found.name] for found in stored("none") if found.name in result.columns}
