"""The design of a study that tunes: its methods, its cases, and the cells of both halves."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedalpha.analysis.measures import Measure
from fedalpha.runs.settings import settings
from fedalpha.study.cells import Cell
from fedalpha.study.plan import Study, accepts
from fedalpha.study.tuning.search import Search
from fedalpha.study.tuning.spaces import Point, Space
from fedalpha.study.tuning.table import Tune


@dataclass(frozen=True, eq=False)
class Method:
    """A method: a name, and settings of which some are searched."""

    name: str
    space: Space

    def text(self, point: Point) -> str:
        """The method at a point, in words: its strategy, or its name where that is not a strategy's text, and the
        other settings that were searched.

        >>> searched = {"strategy": "FedSoftWorse(T=log(0.1, 1))", "lr": "log(0.01, 1)", "batch": 8}
        >>> Method(searched["strategy"], Space.of(searched)).text({"strategy.T": 0.2, "lr": 0.1})
        'FedSoftWorse(T=0.2) with lr=0.1'
        """
        open_keys = {name.partition(".")[0] for name in self.space.dimensions}
        found = self.space.at(point)
        strategy = str(found["strategy"])
        named = self.name == strategy or "strategy" in open_keys
        shown = {k: v for k, v in found.items() if k in open_keys and not (named and k == "strategy")}
        values = ", ".join(f"{key}={value}" for key, value in shown.items())
        return (strategy if named else self.name) + (f" with {values}" if values else "")


@dataclass(frozen=True, eq=False)
class Design:
    """The design of a study with a ``[tune]`` table: methods, cases, and the cells of both halves."""

    study: Study
    tune: Tune

    @staticmethod
    def of(study: Study) -> Design:
        """Raises ValueError for mistakes that can be found before a cell is run."""
        if study.tune is None:
            raise ValueError("the study has no [tune] table; add one, with at least: budget = (rounds per strategy)")
        found = Design(study, study.tune)
        found.check()
        return found

    @cached_property
    def measure(self) -> Measure:
        return Measure.parse(self.tune.measure)

    @cached_property
    def cases(self) -> dict[str, dict[str, Any]]:
        return self.study.variations()

    @cached_property
    def methods(self) -> dict[str, Method]:
        """By name: the study's strategies and methods, each with the space in which it is searched."""
        found = {}
        for name, own in self.study.entries.items():
            try:
                found[name] = Method(name, Space.of({**self.tune.space, **own}, accepts))
            except ValueError as error:
                raise ValueError(f"tune: {name}: {error}") from None
        return found

    @property
    def reference(self) -> str:
        return self.study.against

    @cached_property
    def validation(self) -> dict[str, float]:
        """By case, the share that is set aside for validation: the same for all methods, so that they are paired."""
        found = {}
        for case, variation in self.cases.items():
            texts = [str(m.space.at(p)["strategy"]) for m in self.methods.values() for p in m.space.corners()]
            base = {k: v for k, v in {**self.study.settings, **variation}.items() if k not in ("protocol", "stop_at")}
            found[case] = settings(base).validation_for(texts)
        return found

    def cell(self, case: str, method: str, point: Point, seed: int, reported: bool) -> Cell:
        """One run of a method at a point."""
        own = self.methods[method].space.at(point)
        text = str(own.pop("strategy"))
        one = self.study.model_copy(update={"strategies": (text,), "methods": (), "seeds": (seed,)})
        part = f"{'reported' if reported else 'tuning'}(share={self.tune.clients})" if self.tune.clients else None
        given = {**self.cases[case], "validation": self.validation[case], **own, "part": part}
        try:
            found = one.layout(case, given)[0]
        except ValueError as error:
            label = self.methods[method].text(point)
            raise ValueError(f"{label}{f' ({case})' if case else ''}: {error}") from None
        return dataclasses.replace(found, strategy=method if reported else self.methods[method].text(point))

    def rounds(self, case: str) -> int:
        """The rounds of one run."""
        method, found = next(iter(self.methods.items()))
        return self.cell(case, method, next(found.space.corners()), 0, True).settings.rounds

    def runs(self, case: str) -> int:
        """The number of runs that the budget allows for a method."""
        return self.tune.budget // self.rounds(case)

    def check(self) -> None:
        """Raise ValueError for mistakes that can be found before a cell is run."""
        if self.study.stop_at is not None:
            raise ValueError("tune: runs of a race have one length; leave stop_at out")
        if len(self.methods) < 2:
            raise ValueError("tune: give at least two methods, one of which is the reference")
        for case in self.cases:
            rounds, runs = self.rounds(case), self.runs(case)
            for name, method in self.methods.items():
                for point in method.space.corners():
                    self.cell(case, name, point, self.tune.seeds, False)
                needed = Search.needed(method.space.size)
                if method.space.size != 1 and runs < needed:
                    raise ValueError(
                        f"tune: a budget of {self.tune.budget} rounds is {runs} runs of {rounds} rounds, and {name} "
                        f"needs at least {needed} runs; give budget = {needed * rounds} or more, or shorter runs"
                    )
            last = self.tune.seeds + runs
            if taken := [seed for seed in self.study.seeds if self.tune.seeds <= seed < last]:
                raise ValueError(
                    f"tune: seed {taken[0]} would be tuned on and reported; the tuning seeds are {self.tune.seeds} to "
                    f"at most {last - 1}, choose others with seeds = …"
                )
