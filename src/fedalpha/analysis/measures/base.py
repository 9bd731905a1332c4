"""What a measure is, the two usual forms, and the table of all measures."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedalpha.analysis.columns import numbers
from fedalpha.analysis.registered import Table
from fedalpha.text import nearest

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Curve:
    """One run, as measures see it: columns over rounds 0 … , and whether it stopped before its last round."""

    columns: Mapping[str, Array]
    rounds: int
    """How many rounds were planned."""

    @staticmethod
    def of(columns: Mapping[str, Sequence[float | None]], rounds: int) -> Curve:
        """From lists with None where nothing was measured."""
        arrays = {
            name: np.array([np.nan if v is None else v for v in values], dtype=np.float64)
            for name, values in columns.items()
        }
        return Curve(arrays, rounds)

    @property
    def last(self) -> int:
        return len(self.columns["accuracy"]) - 1

    @property
    def diverged(self) -> bool:
        """Whether the loss was not finite, or 1,000 times that of the initial model, when it was last measured.

        >>> Curve.of({"accuracy": [0.1, 0.1, None], "loss": [2.3, None, None]}, rounds=2).diverged
        True
        """
        measured = np.flatnonzero(~np.isnan(self.columns["accuracy"]))
        if "loss" not in self.columns or not len(measured):
            return False
        first, last = self.columns["loss"][measured[0]], self.columns["loss"][measured[-1]]
        return bool(np.isnan(last) or last > 1000 * first)

    @property
    def kept(self) -> bool:
        """Whether the last round kept the model, as it does if no client sends a usable one."""
        return self.last > 0 and "heaviest" in self.columns and bool(np.isnan(self.columns["heaviest"][-1]))


def curve(rows: Sequence[Mapping[str, Any]], rounds: int | None = None) -> Curve:
    """The rows of a history as a curve."""
    columns = {found.name: [row.get(found.name) for row in rows] for found in numbers()}
    return Curve.of(columns, len(rows) - 1 if rounds is None else rounds)


def rounds_to(accuracies: Array, accuracy: float) -> int | None:
    """The first index at which a curve is at least ``accuracy``; None if there is none.

    >>> rounds_to(np.array([0.1, 0.5, 0.7]), 0.6)
    2
    """
    if not isinstance(accuracy, Real) or not 0 <= accuracy <= 1:
        raise ValueError(f"accuracy = {accuracy!r}; give an accuracy between 0 and 1 (0.6, not 60)")
    reached = np.flatnonzero(accuracies >= accuracy)
    return int(reached[0]) if len(reached) else None


@dataclass(frozen=True)
class Measured:
    """A value, or (``reached`` False) a bound that the value is known to exceed."""

    value: float
    reached: bool = True


class Measure(ABC):
    """A number that is read off a run. Measures with equal text are equal.

    >>> run = Curve.of({"accuracy": [0.1, 0.5, 0.7]}, rounds=2)
    >>> Measure.parse("R_60").of(run), Measure.parse("accuracy@1").of(run).value
    (Measured(value=2.0, reached=True), 0.5)
    >>> Measure.parse("R_90").of(run)
    Measured(value=2.0, reached=False)
    """

    name: ClassVar[str]
    order: ClassVar[int] = 500
    """Its place in lists; a new measure keeps the default."""
    unit: ClassVar[str] = ""
    """What it counts from the start of a run, such as rounds: then censored runs can be cut at a common point."""
    timed: ClassVar[bool] = False
    """Whether only runs with simulated time have it."""
    text: str
    heading: str
    """For tables and axes."""
    scale: float = 1.0
    """The factor for display: 100 for fractions, which are shown in %."""
    digits: int = 2
    higher_is_better: bool = False
    praise: str = "better"
    """The word for a better value in figures."""
    at: int | None = None
    """The round at which it is measured; None for the final one, or for no single round."""
    percent: float | None = None
    """The accuracy that is to be reached; None where there is none."""

    @staticmethod
    def parse(text: str) -> Measure:
        """The measure that a text names."""
        kinds = list(MEASURES)
        for kind in kinds:
            if (found := kind.read(text)) is not None:
                return found
        known = [example for kind in kinds for example in kind.examples()]
        raise ValueError(f"unknown measure {text!r}; {nearest(text, known)}")

    @classmethod
    @abstractmethod
    def read(cls, text: str) -> Measure | None:
        """The measure of this kind that the text names; None for the text of another kind."""

    @classmethod
    @abstractmethod
    def examples(cls) -> list[str]:
        """Texts of this kind, for error messages."""

    @abstractmethod
    def of(self, run: Curve) -> Measured | None:
        """The value for one run; None if the run has none."""

    def end(self, run: Curve) -> int | None:
        """The last round that decides the value; None for the last one of the run."""
        return self.at

    def looks_at(self, run: Curve) -> bytes:
        """The rounds that decide the value: for this measure, two runs that agree in them count as the same run.

        >>> short, longer = (Curve.of({"accuracy": a}, rounds=2) for a in ([0.1, 0.6, 0.7], [0.1, 0.6, 0.8]))
        >>> Measure.parse("R_60").looks_at(short) == Measure.parse("R_60").looks_at(longer)
        True
        >>> Measure.parse("R_65").looks_at(short) == Measure.parse("R_65").looks_at(longer)  # the same value, by chance
        False
        """
        end = self.end(run)
        rounds = slice(None if end is None else end + 1)
        return b"".join(run.columns[name][rounds].tobytes() for name in sorted(run.columns))

    @property
    def time_like(self) -> bool:
        """Whether a run may be censored."""
        return self.percent is not None

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Measure.parse({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Measure) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


MEASURES: Table[Measure] = Table("measure", __package__)


class Whole(Measure):
    """A measure of the whole accuracy curve, as a fraction; its text is its name."""

    needed = ("name", "heading")
    scale = 100.0

    def __init__(self) -> None:
        self.text = self.name

    @classmethod
    def read(cls, text: str) -> Measure | None:
        return cls() if text == cls.name else None

    @classmethod
    def examples(cls) -> list[str]:
        return [cls.name]

    @abstractmethod
    def over(self, rounds: NDArray[np.int64], accuracy: Array) -> float:
        """The value, from the rounds that were evaluated and the accuracies there."""

    def of(self, run: Curve) -> Measured | None:
        drawn = ~np.isnan(run.columns["accuracy"])
        if run.last < run.rounds or not drawn[-1] or run.last == 0:
            return None
        return Measured(self.over(np.flatnonzero(drawn), run.columns["accuracy"][drawn]))


class Until(Measure):
    """What it took until ``percent`` % test accuracy was reached; its text is ``name_percent``.

    The class attribute ``heading`` has {} in place of the percentage.
    """

    needed = ("name", "heading")
    percent: float

    def __init__(self, percent: float) -> None:
        self.percent = percent
        self.text = f"{self.name}_{percent:g}"
        self.heading = self.heading.format(f"{percent:g}")
        if not 0 < percent <= 100:
            raise ValueError(f"measure {self.text!r}: {percent:g} % is not an accuracy; give a number in (0, 100]")

    @classmethod
    def read(cls, text: str) -> Measure | None:
        match = re.fullmatch(rf"{re.escape(cls.name)}_(\d+(?:\.\d+)?)", text)
        return cls(float(match[1])) if match else None

    @classmethod
    def examples(cls) -> list[str]:
        return [f"{cls.name}_60"]

    @abstractmethod
    def spent(self, run: Curve, end: int) -> float:
        """What rounds 0 … ``end`` took."""

    def end(self, run: Curve) -> int | None:
        return rounds_to(run.columns["accuracy"], self.percent / 100)

    def of(self, run: Curve) -> Measured | None:
        found = self.end(run)
        if found is None and run.last < run.rounds:
            return None  # it stopped early for another reason, so where it stopped is not an unbiased bound
        return Measured(self.spent(run, run.last if found is None else found), found is not None)


def total(run: Curve, *names: str, end: int) -> float:
    """The sum of columns over rounds 0 … ``end``."""
    return sum(float(np.nansum(run.columns[name][: end + 1])) for name in names)
