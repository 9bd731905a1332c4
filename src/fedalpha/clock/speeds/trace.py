"""Measured times from a file."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from fedalpha.clock.speeds.base import CLOCKS, Clock, Moment, whole_population
from fedalpha.clock.table import by_client, read_table
from fedalpha.select.base import Ids
from fedalpha.strategies import Array
from fedalpha.text import counted, shown


@CLOCKS.register(
    formula="lines client,compute,transfer (or client,seconds): a client's lines hold for rounds 0, 1, … in turn",
    examples=("trace('speeds.csv')",),
)
class trace(Clock):
    """Measured seconds of computing and of transfer: a CSV file with a header.

    ``sha256`` is that of the file. It is added when the file is first read and is part of the text, so that a run
    or a study is never resumed with other times.
    """

    file: str
    sha256: str = ""

    def __post_init__(self) -> None:
        _ = self._table

    @cached_property
    def _table(self) -> dict[int, Array]:
        columns, lines, digest = read_table(self.file, self.sha256, "clock")
        object.__setattr__(self, "sha256", digest)
        if columns not in (("client", "compute", "transfer"), ("client", "seconds")):
            raise ValueError(
                f"trace: {shown(self.file)} has {len(columns)} columns of other names; give "
                "client,compute,transfer or client,seconds"
            )
        table = by_client(lines, self.file)
        for id, values in table.items():
            if (values < 0).any() or not (values.sum(axis=1) > 0).all():
                raise ValueError(f"trace: {shown(self.file)} gives client {id} a time that is not > 0")
        return table

    def seconds(self, moment: Moment, ids: Ids) -> Array:
        found = [self._table[id] for id in ids.tolist()]
        return np.array([values[moment.round % len(values)].sum() for values in found])

    def check(self, population: Any) -> None:
        everybody = whole_population(Moment(0, 0, population)).tolist()
        if missing := [id for id in everybody if id not in self._table]:
            raise ValueError(
                f"trace: {shown(self.file)} has no line for {counted(len(missing), 'client')}, for example client "
                f"{missing[0]}; add a line for each"
            )
