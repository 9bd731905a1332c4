"""What is measured on a run, written as text.

- ``accuracy``, ``loss``, ``worst_client_accuracy``, ``client_accuracy_spread``: at the final round, or at a
  named one (``accuracy@20``); never at the best one.
- ``R_60``: the smallest r such that the model after r rounds has at least 60 % test accuracy.
- ``bytes_to_60``, ``steps_to_60``: all bytes (both ways), all local steps until then.
- ``auc``: the mean accuracy over rounds 0 … the last one (trapezoids).
- ``fall``: how much accuracy is lost from one round to the next, on average (a rise counts as 0): instability.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from fedalpha.text import nearest

if TYPE_CHECKING:
    from fedalpha.history import History

Kind = Literal[
    "accuracy",
    "loss",
    "worst_client_accuracy",
    "client_accuracy_spread",
    "R",
    "bytes_to",
    "steps_to",
    "auc",
    "fall",
]
_POINTS = ("accuracy", "loss", "worst_client_accuracy", "client_accuracy_spread")
_WHOLE_RUN = ("auc", "fall")
_WORDS = {
    "accuracy": "test accuracy (%)",
    "loss": "test loss",
    "worst_client_accuracy": "worst client's accuracy (%)",
    "client_accuracy_spread": "spread of client accuracy (points)",
    "auc": "mean accuracy over rounds (%)",
    "fall": "mean fall of accuracy per round (points)",
}


@dataclass(frozen=True, eq=False)
class Curve:
    """One run, as measures see it: columns over rounds 0 … , and whether it stopped before its last round."""

    columns: Mapping[str, NDArray[np.float64]]
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


def curve(history: History, rounds: int | None = None) -> Curve:
    """A history as a curve."""
    names = (*_POINTS, "steps", "bytes_down", "bytes_up")
    last = len(history.rows) - 1
    return Curve({name: history.column(name) for name in names}, last if rounds is None else rounds)


@dataclass(frozen=True)
class Measured:
    """A value, or (``reached`` False) a bound that the value is known to exceed."""

    value: float
    reached: bool = True


@dataclass(frozen=True)
class Measure:
    """One of the measures above.

    >>> run = Curve.of({"accuracy": [0.1, 0.5, 0.7]}, rounds=2)
    >>> Measure.parse("R_60").of(run), Measure.parse("accuracy@1").of(run).value
    (Measured(value=2.0, reached=True), 0.5)
    >>> Measure.parse("R_90").of(run)
    Measured(value=2.0, reached=False)
    """

    kind: Kind
    at: int | None = None
    percent: float | None = None

    @staticmethod
    def parse(text: str) -> Measure:
        if match := re.fullmatch(r"(R|bytes_to|steps_to)_(\d+(?:\.\d+)?)", text):
            percent = float(match[2])
            if not 0 < percent <= 100:
                raise ValueError(f"measure {text!r}: {percent:g} % is no accuracy; give a number in (0, 100]")
            return Measure(match[1], percent=percent)  # type: ignore[arg-type]
        name, _, at = text.partition("@")
        if name in _POINTS and (not at or at.isdecimal()) and text[-1] != "@":
            return Measure(name, at=int(at) if at else None)  # type: ignore[arg-type]
        if text in _WHOLE_RUN:
            return Measure(text)  # type: ignore[arg-type]
        known = (*_POINTS, *(f"{n}@20" for n in _POINTS), *_WHOLE_RUN, "R_60", "bytes_to_60", "steps_to_60")
        raise ValueError(f"unknown measure {text!r}; {nearest(text, known)}")

    def __str__(self) -> str:
        if self.percent is not None:
            return f"{self.kind}_{self.percent:g}"
        return self.kind if self.at is None else f"{self.kind}@{self.at}"

    @property
    def time_like(self) -> bool:
        """Whether a run may end without an answer."""
        return self.percent is not None

    @property
    def scale(self) -> float:
        """By which a value is multiplied to be shown."""
        if self.kind == "bytes_to":
            return 1e-6
        return 1.0 if self.kind in ("loss", "R", "steps_to") else 100.0

    @property
    def digits(self) -> int:
        return {"loss": 4, "bytes_to": 1, "steps_to": 0}.get(self.kind, 2)

    @property
    def higher_is_better(self) -> bool:
        return self.kind in ("accuracy", "worst_client_accuracy", "auc")

    @property
    def heading(self) -> str:
        """For tables and axes."""
        if self.percent is not None:
            words = {"R": f"R_{self.percent:g} (rounds)", "bytes_to": f"MB to {self.percent:g} %"}
            return words.get(self.kind, f"local steps to {self.percent:g} %")
        when = "" if self.kind in _WHOLE_RUN else ", final round" if self.at is None else f", round {self.at}"
        return _WORDS[self.kind] + when

    def of(self, run: Curve) -> Measured | None:
        """The value for one run; None if the run does not answer the question."""
        if self.percent is not None:
            return self._until(run)
        if self.kind in _WHOLE_RUN:
            return self._whole(run)
        at = run.rounds if self.at is None else self.at
        column = run.columns.get(self.kind)
        if column is None or at > run.last or math.isnan(column[at]):
            return None
        return Measured(float(column[at]))

    def looks_at(self, run: Curve) -> bytes:
        """The rounds that decide the value: two runs that agree in them are one run, as far as this measure goes.

        >>> short, longer = (Curve.of({"accuracy": a}, rounds=2) for a in ([0.1, 0.6, 0.7], [0.1, 0.6, 0.8]))
        >>> Measure.parse("R_60").looks_at(short) == Measure.parse("R_60").looks_at(longer)
        True
        >>> Measure.parse("R_65").looks_at(short) == Measure.parse("R_65").looks_at(longer)  # the same value, by chance
        False
        """
        end = self.at
        if self.percent is not None:
            end = self._arrival(run)
        rounds = slice(None if end is None else end + 1)
        return b"".join(run.columns[name][rounds].tobytes() for name in sorted(run.columns))

    def _whole(self, run: Curve) -> Measured | None:
        drawn = ~np.isnan(run.columns["accuracy"])
        if run.last < run.rounds or not drawn[-1] or run.last == 0:
            return None
        rounds, accuracy = np.flatnonzero(drawn), run.columns["accuracy"][drawn]
        span = rounds[-1] - rounds[0]
        if self.kind == "auc":
            return Measured(float(np.trapezoid(accuracy, rounds) / span))
        return Measured(float(np.maximum(0, -np.diff(accuracy)).sum() / span))

    def _arrival(self, run: Curve) -> int | None:
        from fedalpha.history import rounds_to

        assert self.percent is not None
        return rounds_to(run.columns["accuracy"], self.percent / 100)

    def _until(self, run: Curve) -> Measured | None:
        found = self._arrival(run)
        if found is None and run.last < run.rounds:
            return None  # it stopped because of another question: no bound that is independent of the answer
        end = run.last if found is None else found
        if self.kind == "R":
            return Measured(float(end), found is not None)
        names = ("steps",) if self.kind == "steps_to" else ("bytes_down", "bytes_up")
        spent = sum(float(np.nansum(run.columns[name][: end + 1])) for name in names)
        return Measured(spent, found is not None)
