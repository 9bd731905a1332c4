"""The condition under which a cell stops early: ``stop_at = "accuracy >= 0.6"``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedalpha.analysis.columns import stored
from fedalpha.text import nearest

_SIGNS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_FORM = re.compile(r"\s*([A-Za-z_]+)\s*(>=|<=|>|<)\s*([0-9.eE+-]+)\s*")


@dataclass(frozen=True)
class StopAt:
    """A column of the history compared with a number.

    >>> condition = StopAt.parse("accuracy >= 0.6")
    >>> condition({"accuracy": 0.61}), condition({"accuracy": None}), str(condition)
    (True, False, 'accuracy >= 0.6')
    >>> str(StopAt.parse("round >= 1234567"))
    'round >= 1234567.0'
    """

    column: str
    sign: str
    value: float

    @staticmethod
    def parse(text: str) -> StopAt:
        match = _FORM.fullmatch(text)
        try:
            if match is None:
                raise ValueError
            column, sign, value = match[1], match[2], float(match[3])
        except ValueError:
            raise ValueError(f"stop_at = {text!r} is not a condition; write it like 'accuracy >= 0.6'") from None
        known = {found.name: found for found in stored("none")}
        if column not in known:
            raise ValueError(f"stop_at = {text!r}: unknown column {column!r}; {nearest(column, known)}")
        if known[column].scale == 100 and not 0 <= value <= 1:
            raise ValueError(f"stop_at = {text!r}: {column} is a fraction between 0 and 1 (0.6, not 60)")
        return StopAt(column, sign, value)

    def __call__(self, row: dict[str, Any]) -> bool:
        found = row.get(self.column)
        return found is not None and _SIGNS[self.sign](found, self.value)

    def __str__(self) -> str:
        short = f"{self.value:g}"
        return f"{self.column} {self.sign} {short if float(short) == self.value else repr(self.value)}"
