"""Recorded availability from a file."""

from __future__ import annotations

import bisect
import math
from functools import cached_property
from typing import Any

import numpy as np

from fedalpha.clock.availability.base import AVAILABILITIES, Availability, check_period
from fedalpha.clock.table import by_client, read_table
from fedalpha.strategies import Array
from fedalpha.strategies.arguments import positive
from fedalpha.text import shown


@AVAILABILITIES.register(
    formula="lines client,on,off: the client is available from second ``on`` to second ``off``",
    examples=("trace('windows.csv', period=86400)",),
)
class trace(Availability):
    """Recorded intervals of availability: a CSV file with a header and any number of lines for each client.

    With ``period`` the file is repeated after that many seconds; without it no client is available after the last
    line. Intervals that touch are one, also from the end of a period to the start of the next: a night has two lines,
    the evening and the morning. Clients without a line are never available. ``sha256`` is that of the file; see the
    clock ``trace``.
    """

    file: str
    period: float | None = None
    sha256: str = ""

    def __post_init__(self) -> None:
        if self.period is not None:
            positive("trace", "period", self.period)
        _ = self._table

    @cached_property
    def _table(self) -> dict[int, Array]:
        columns, lines, digest = read_table(self.file, self.sha256, "availability")
        object.__setattr__(self, "sha256", digest)
        if columns != ("client", "on", "off"):
            raise ValueError(f"trace: {shown(self.file)} has {len(columns)} columns of other names; give client,on,off")
        table = {
            id: values[np.argsort(values[:, 0], kind="stable")] for id, values in by_client(lines, self.file).items()
        }
        end = math.inf if self.period is None else self.period
        for id, values in table.items():
            gaps = values[1:, 0] < values[:-1, 1]
            if (values[:, 0] < 0).any() or (values[:, 1] <= values[:, 0]).any() or gaps.any() or values[-1, 1] > end:
                raise ValueError(
                    f"trace: the intervals of client {id} in {shown(self.file)} must have 0 ≤ on < off and not overlap"
                    + ("" if self.period is None else f", within the period of {self.period:g} s")
                )
        return {id: _joined(values) for id, values in table.items()}

    def window(self, seed: int, client: int, time: float) -> tuple[float, float] | None:
        table = self._table.get(client)
        if table is None:
            return None
        if self.period is not None:
            check_period(self, self.period, time)
        shift = 0.0 if self.period is None else math.floor(time / self.period) * self.period
        last = len(table) - 1
        round_the_end = self.period is not None and table[0, 0] == 0 and table[last, 1] == self.period
        if round_the_end and last == 0:
            return 0.0, math.inf
        for start in (shift, shift + (self.period or 0.0)):
            place = bisect.bisect_right(table[:, 1].tolist(), time - start)
            while place <= last:
                on, off = start + float(table[place, 0]), start + float(table[place, 1])
                if off > time:
                    if round_the_end and place == 0 and start > 0:
                        on += float(table[last, 0]) - (self.period or 0.0)
                    if round_the_end and place == last:
                        off += float(table[0, 1])
                    return on, off
                place += 1
            if self.period is None:
                return None
        return None

    def check(self, population: Any) -> None:
        everybody = population.named(np.arange(population.clients)).tolist()
        if not any(id in self._table for id in everybody):
            raise ValueError(f"trace: {shown(self.file)} has no line for any client of this federation")


def _joined(intervals: Array) -> Array:
    """Intervals in order; those that touch are joined.

    >>> _joined(np.array([[0.0, 5.0], [5.0, 8.0], [9.0, 10.0]])).tolist()
    [[0.0, 8.0], [9.0, 10.0]]
    """
    first = np.concatenate([[True], intervals[1:, 0] > intervals[:-1, 1]])
    return np.column_stack([intervals[first, 0], intervals[np.append(first[1:], True), 1]])
