"""When a run stops early: ``accuracy >= 0.9``, ``patience(loss, rounds=5)``, or several conditions with ``or``.

A condition is a pure function of the rows so far, so a resumed run stops at the same round. The same texts are
``stop`` of a run and of a live federation, ``stop_at`` of a study, and the argument of `StopWhen`.
"""

from __future__ import annotations

import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedalpha.analysis.columns import Column, stored
from fedalpha.text import LONGEST, Registry, Spelled, nearest, quoted

Rows = Sequence[Mapping[str, Any]]

_SIGNS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_BETWEEN = re.compile(r"(?<!\s)\s+or\s+")  # it begins at the first of several spaces, so it is linear in the length
_FORM = re.compile(r"\s*([A-Za-z_][A-Za-z_0-9]*)\s*(>=|<=|>|<)\s*([0-9.eE+-]+)\s*")


class Condition(ABC):
    """A condition on the rows of a run."""

    @property
    @abstractmethod
    def columns(self) -> frozenset[str]:
        """The columns that it reads."""

    @abstractmethod
    def holds(self, rows: Rows, names: Mapping[str, str] | None = None) -> bool:
        """Whether it holds after the last row. ``names`` gives columns to read in place of others.

        >>> rows = [{"round": 0, "accuracy": 0.5}, {"round": 1, "accuracy": None}]
        >>> condition("accuracy >= 0.5").holds(rows[:1]), condition("accuracy >= 0.5").holds(rows)
        (True, False)
        """


@dataclass(frozen=True)
class Comparison(Condition):
    """A column of the last row compared with a number.

    >>> str(condition("accuracy >= 0.60")), str(condition("round >= 1234567"))
    ('accuracy >= 0.6', 'round >= 1234567.0')
    """

    column: str
    sign: str
    value: float

    @property
    def columns(self) -> frozenset[str]:
        return frozenset({self.column})

    def holds(self, rows: Rows, names: Mapping[str, str] | None = None) -> bool:
        found = rows[-1].get((names or {}).get(self.column, self.column)) if rows else None
        return found is not None and _SIGNS[self.sign](found, self.value)

    def __str__(self) -> str:
        short = f"{self.value:g}"
        return f"{self.column} {self.sign} {short if float(short) == self.value else repr(self.value)}"


@dataclass(frozen=True)
class Either(Condition):
    """Holds as soon as one of its conditions holds."""

    conditions: tuple[Condition, ...]

    @property
    def columns(self) -> frozenset[str]:
        return frozenset().union(*(one.columns for one in self.conditions))

    def holds(self, rows: Rows, names: Mapping[str, str] | None = None) -> bool:
        return any(one.holds(rows, names) for one in self.conditions)

    def __str__(self) -> str:
        return " or ".join(str(one) for one in self.conditions)


CONDITIONS: Registry[Condition] = Registry("condition", Condition)  # type: ignore[type-abstract]
"""The conditions that are written as calls."""


@CONDITIONS.register(name="patience", examples=("patience(loss, rounds=5)",))
class Patience(Spelled, Condition, name="patience"):
    """The column has not improved for ``rounds`` rounds. A change of at most ``least`` is not an improvement.

    Rounds in which the column is not measured are passed over. A loss that is not finite does not count either.

    >>> losses = [0.9, 0.5, 0.6, 0.7]
    >>> rows = [{"round": r, "loss": loss} for r, loss in enumerate(losses)]
    >>> [Patience("loss", rounds=2).holds(rows[: r + 1]) for r in range(4)]
    [False, False, False, True]
    """

    column: str = field(metadata={"positional": True})
    rounds: int = field(default=5, metadata={"always": True})
    least: float = 0.0

    def __post_init__(self) -> None:
        if _known(self.column, str(self)).better is None:
            better = [c.name for c in stored("none") if c.better]
            raise ValueError(
                f"{self}: {self.column} has no direction that counts as better; use one of {', '.join(better)}"
            )
        if isinstance(self.rounds, bool) or not isinstance(self.rounds, int) or self.rounds < 1:
            raise ValueError(f"{self}: rounds = {self.rounds!r}; give a number of rounds ≥ 1")
        if not self.least >= 0:
            raise ValueError(f"{self}: least = {self.least!r}; give a number ≥ 0")

    @property
    def columns(self) -> frozenset[str]:
        return frozenset({self.column})

    def holds(self, rows: Rows, names: Mapping[str, str] | None = None) -> bool:
        name = (names or {}).get(self.column, self.column)
        sign = 1.0 if _known(self.column, str(self)).better == "higher" else -1.0
        best, since = None, 0
        for row in rows:
            value = row.get(name)
            if value is not None and (best is None or sign * (value - best) > self.least):
                best, since = value, row["round"]
        return bool(rows) and _measured(rows[-1], name) and rows[-1]["round"] - since >= self.rounds


def condition(text: str | Condition, key: str = "stop") -> Condition:
    """The condition that a text describes; ``key`` names the setting in error messages.

    >>> print(condition("accuracy>=0.9 or patience(loss)"))
    accuracy >= 0.9 or patience(loss, rounds=5)
    """
    if isinstance(text, Condition):
        return text
    if not isinstance(text, str):
        raise ValueError(f"{key} = {quoted(text)} is not a condition; write it like 'accuracy >= 0.6'")
    if len(text) > LONGEST:
        raise ValueError(f"{key} is a condition of {len(text):,} characters; give at most {LONGEST:,}")
    parts = _BETWEEN.split(text.strip())
    found = tuple(_one(part, f"{key} = {quoted(text)}") for part in parts)
    return found[0] if len(found) == 1 else Either(found)


def _one(text: str, where: str) -> Condition:
    match = _FORM.fullmatch(text)
    if match is None and "(" in text:
        try:
            return CONDITIONS.parse(text)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
    try:
        if match is None:
            raise ValueError
        column, sign, value = match[1], match[2], float(match[3])
    except ValueError:
        raise ValueError(
            f"{where} is not a condition; write it like 'accuracy >= 0.6' or 'patience(loss, rounds=5)'"
        ) from None
    if _known(column, where).scale == 100 and not 0 <= value <= 1:
        raise ValueError(f"{where}: {column} is a fraction between 0 and 1 (0.6, not 60)")
    return Comparison(column, sign, value)


def _known(column: str, where: str) -> Column:
    known = {found.name: found for found in stored("none")}
    if column not in known:
        raise ValueError(f"{where}: unknown column {quoted(column)}; {nearest(column, known)}")
    return known[column]


def _measured(row: Mapping[str, Any], name: str) -> bool:
    """Whether the row measures the column; beside an accuracy, a loss of None is one that is not finite."""
    return row.get(name) is not None or (name.endswith("loss") and row.get(name[:-4] + "accuracy") is not None)
