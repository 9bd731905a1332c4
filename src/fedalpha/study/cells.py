"""A cell: one strategy, one seed, one case; its key, and the cells that coincide with it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedalpha.analysis.conditions import Condition, condition
from fedalpha.runs.settings import Settings
from fedalpha.strategies import STRATEGIES, Strategy
from fedalpha.strategies.switch import Switch
from fedalpha.text import quoted

_ALWAYS = {"dataset", "partition", "clients", "model", "strategy", "rounds", "seed", "update", "select", "validation"}


@dataclass(frozen=True)
class Cell:
    """``strategy`` is its text in the study; ``settings.strategy`` is the one that runs (a protocol may change it).

    ``stored_as`` is the key under which a study's folder has stored the cell.
    """

    case: str
    strategy: str
    seed: int
    settings: Settings
    stop_at: Condition | None = None
    stored_as: str | None = None

    @cached_property
    def config(self) -> dict[str, Any]:
        """Everything that decides the rows of this cell.

        Settings at their default are left out, so that a setting that is added to the library later does not change
        the keys of finished cells.
        """
        full, given = self.settings.model_dump(exclude_none=True), self.settings.model_dump(exclude_defaults=True)
        config = {name: value for name, value in full.items() if name in _ALWAYS or name in given}
        return config | ({"stop_at": str(self.stop_at)} if self.stop_at else {})

    @cached_property
    def key(self) -> str:
        """The hash of the configuration: the cell's name on disk."""
        return self.stored_as or _digest(self.config)

    def entry(self) -> dict[str, Any]:
        """The cell in ``study.json``: all of its settings, so that later changes of defaults do not matter."""
        stop = {"stop_at": str(self.stop_at)} if self.stop_at else {}
        own = {"cell": self.key, "case": self.case, "strategy": self.strategy, "seed": self.seed, **stop}
        return own | {"settings": self.settings.model_dump(exclude_none=True)}

    @staticmethod
    def from_entry(entry: dict[str, Any]) -> Cell:
        stop = condition(entry["stop_at"], "stop_at") if "stop_at" in entry else None
        given = entry["settings"]
        for name in ("rounds", "clients", "seed", "evaluate_every"):
            if type(given.get(name, 1)) is not int or not 0 <= given.get(name, 1) <= 2**53:
                raise ValueError(f"{name} = {quoted(given[name])} is not a whole number")
        for name in ("dataset", "partition", "strategy", "update"):
            if not isinstance(given.get(name, ""), str):
                raise ValueError(f"{name} = {quoted(given[name])} is not a text")
        full = Settings.model_construct(**given)  # the rest was checked when it was stored
        key, seed = str(entry["cell"]), int(entry["seed"])
        if not re.fullmatch(r"[0-9a-f]{16}", key):  # it names files
            raise ValueError(f"{quoted(key)} is not the key of a cell")
        return Cell(str(entry["case"]), str(entry["strategy"]), seed, full, stop, key)

    @cached_property
    def group(self) -> str:
        """The hash of everything but the strategy: cells of one group may share rounds."""
        return _digest({name: value for name, value in self.config.items() if name != "strategy"})

    @cached_property
    def stages(self) -> list[tuple[int, str]]:
        """(first round, rule) of each stage."""
        return stages(STRATEGIES.parse(self.settings.strategy))

    @cached_property
    def looks(self) -> bool:
        """Whether the strategy uses the accuracy."""
        return "accuracy" in STRATEGIES.parse(self.settings.strategy).requires

    def shared(self, other: Cell) -> int:
        """How many rounds from the start the two cells play by the same rules; their rows up to there are equal.

        0 for cells that differ in anything but the strategy, and if only one uses the accuracy (its state contains the
        accuracy).
        """
        if self.group != other.group or self.looks != other.looks:
            return 0
        limit = self.settings.rounds
        mine, theirs = self.stages, other.stages
        for (start, rule), (other_start, other_rule) in zip(mine, theirs, strict=False):
            if (start, rule) != (other_start, other_rule):
                return min(start, other_start, limit)
        longer = mine if len(mine) > len(theirs) else theirs
        shorter = min(len(mine), len(theirs))
        return min(longer[shorter][0], limit) if len(longer) > shorter else limit

    @property
    def label(self) -> str:
        return ", ".join([self.strategy, f"seed {self.seed}"] + [self.case] * bool(self.case))


def grouped(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    """Cells by their group, in order."""
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell.group, []).append(cell)
    return found


def stages(strategy: Strategy) -> list[tuple[int, str]]:
    """The rules that a strategy plays, each from its first round; stages of no length are left out.

    >>> stages(STRATEGIES.parse("switch(FedBetter, FedAvg, at=20)"))
    [(0, 'FedBetter'), (20, 'FedAvg')]
    """
    if not isinstance(strategy, Switch) or not strategy.at:
        return [(0, str(strategy))]
    if any(isinstance(member, Switch) for member in strategy.members):
        return [(0, str(strategy))]  # an inner switch counts its own rounds
    starts = [0, *strategy.at]
    ends: list[float] = [*strategy.at, float("inf")]
    found: list[tuple[int, str]] = []
    for start, end, member in zip(starts, ends, strategy.members, strict=True):
        if start < end:
            found.append((start, str(member)))
    return found


def _digest(value: dict[str, Any]) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
