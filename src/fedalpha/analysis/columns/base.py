"""What a column is, what it is computed from, and the table of all columns."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedalpha.analysis.fairness import Owners
from fedalpha.analysis.registered import Table
from fedalpha.round import Outcome

Array = NDArray[np.float64]
T = TypeVar("T")
PerClient = Literal["drawn", "all", "none"]
"""Which per-client columns a study keeps: those that its report draws (of the first seed), all, or none."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Context:
    """What the columns of one row are computed from; ``round`` r describes the model after r rounds.

    ``outcome`` is None in round 0; ``influence`` is what liars could have done in the round. ``accuracy`` and
    ``loss`` belong to the test set and are None in rounds that are not evaluated; ``correct`` has a number per
    test sample, and ``owners`` gives the client of each. ``nodes`` names the node behind each client of a live
    federation, and ``told`` holds the accuracies that clients reported of their own evaluation; None where they are not
    asked.
    ``scores`` are what the task asks for besides accuracy. ``validation_loss`` and the three after it are what a run
    watches (`fedalpha.analysis.watch`).
    """

    round: int
    outcome: Outcome | None = None
    influence: Mapping[str, float | None] | None = None
    accuracy: float | None = None
    loss: float | None = None
    correct: Array | None = None
    owners: Owners | None = None
    validation_accuracy: float | None = None
    secure: bool = False
    """Whether the run has a secure sum."""
    live: Mapping[str, Any] | None = None
    """What only a live federation knows; None in a simulation."""
    validation_loss: float | None = None
    shadow: Mapping[str, Any] | None = None
    best_round: int | None = None
    stopped: str | None = None
    nodes: Mapping[int, str] | None = None
    told: Mapping[int, float] | None = None
    time: float | None = None
    """Simulated seconds since the start of the run; None without a clock."""
    late: bool = False
    """Whether the server does not wait, so that updates may be stale."""
    scores: Mapping[str, float | None] = field(default_factory=dict)
    seconds: float = 0.0
    _known: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def once(self, compute: Callable[[Context], T]) -> T:
        """``compute(self)``, computed once for all columns that ask for it."""
        if compute not in self._known:
            self._known[compute] = compute(self)
        found: T = self._known[compute]
        return found


class Column(ABC):
    """One column; the class attributes are all that the rest of the library knows about it."""

    name: ClassVar[str]
    order: ClassVar[int] = 500
    """Its place in a row; a new column keeps the default and comes last, before ``seconds``."""
    dtype: ClassVar[Literal["int32", "int64", "float32", "float64"] | None] = None
    """The dtype of the number, or of each number in a list; None for anything else (text, objects)."""
    per_client: ClassVar[bool] = False
    """Whether it holds a list with a value per client."""
    stored: ClassVar[bool] = True
    """Whether the cells of a study keep it (per-client columns: where the study asks for them)."""
    optional: ClassVar[bool] = False
    """Whether only some runs have it; a study's cells then keep it only where a row has it."""
    timed: ClassVar[bool] = False
    """Whether only runs with simulated time have it."""
    heading: ClassVar[str] = ""
    """For tables and axes; by default the name, where it is drawn or measured."""
    scale: ClassVar[float] = 1.0
    """The factor for display: 100 for fractions, which are shown in %."""
    digits: ClassVar[int] = 2
    better: ClassVar[Literal["higher", "lower"] | None] = None
    """Which way is better. A column that says so can be measured: ``loss``, ``loss@20``."""
    praise: ClassVar[str] = "better"
    tested: ClassVar[bool] = False
    """Whether it is measured on the test set."""
    scored: ClassVar[bool] = False
    """Whether only runs have it whose task asks for it by its name, as ``Task(scores=…)``."""
    panel: ClassVar[bool] = False
    """Whether a report draws it: numbers over the rounds among the diagnostics."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if (cls.better or cls.panel) and not cls.heading and hasattr(cls, "name"):
            cls.heading = cls.name.replace("_", " ")

    @abstractmethod
    def value(self, context: Context) -> Any:
        """The value in a row, as JSON."""

    def present(self, context: Context) -> bool:
        """Whether a row has this column at all."""
        return True

    def read(self, row: Mapping[str, Any]) -> Any:
        """The value that a study's cell keeps, from a row."""
        return row.get(self.name)


COLUMNS: Table[Column] = Table("column", __package__)


def columns() -> list[Column]:
    """All columns, in their order."""
    return [cls() for cls in COLUMNS]


def column(name: str) -> Column:
    """The column of that name."""
    return next(found for found in columns() if found.name == name)


def stored(per_client: PerClient = "all") -> list[Column]:
    """The columns that a study's cells keep, single numbers first, then the chosen per-client columns."""
    named = {"all": (False, True), "drawn": (True,), "none": ()}[per_client]
    kept = [found for found in columns() if found.stored and found.dtype]
    kept = [found for found in kept if not found.per_client or found.panel in named]
    return sorted(kept, key=lambda found: found.per_client)


def numbers() -> list[Column]:
    """The stored columns with one number per round, the round itself aside."""
    return [found for found in stored("none") if found.name != "round"]


def row(context: Context) -> dict[str, Any]:
    """The row of a history, its keys in the order of the columns.

    >>> row(Context(round=0, accuracy=0.1, loss=2.3))["steps"]
    0
    """
    return {found.name: found.value(context) for found in columns() if found.present(context)}


def check_numbers(rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise ValueError if a row, which may be of a file, holds anything else where a column has a number."""
    for found in numbers():
        for value in map(found.read, rows):
            whole = isinstance(value, int) and abs(value) > sys.float_info.max
            if whole or not isinstance(value, int | float | None):
                raise ValueError(f"the {found.name} of a row is not a number")


def finite(value: float | None) -> float | None:
    """The value, or None if JSON cannot represent it (NaN, infinity)."""
    return value if value is not None and math.isfinite(value) else None
