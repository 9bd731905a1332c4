"""Which clients took part, how they were weighed, and the losses that they reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from fedalpha.analysis.columns.base import COLUMNS, Column, Context, finite


@COLUMNS.register
class Ids(Column):
    """The ids of the cohort, in order; None in round 0."""

    name = "cohort"
    order = 70
    dtype = "int32"
    per_client = True
    panel = True

    def value(self, context: Context) -> list[int] | None:
        return None if context.outcome is None else context.outcome.cohort.ids.tolist()


@COLUMNS.register
class Alpha(Column):
    """The weights of the cohort; all 0 where the model was kept."""

    name = "alpha"
    order = 80
    dtype = "float32"  # in cells, which is enough for pictures
    per_client = True
    panel = True

    def value(self, context: Context) -> list[float] | None:
        return None if context.outcome is None else context.outcome.alpha.tolist()


@COLUMNS.register
class Losses(Column):
    """The losses of the cohort by kind: before, train, after."""

    name = "losses"
    order = 90

    def value(self, context: Context) -> dict[str, list[float | None]] | None:
        if context.outcome is None:
            return None
        return {kind: [finite(v) for v in values] for kind, values in context.outcome.losses.items()}


class _LossOfAKind(Column):
    """One kind of ``losses`` as a column of a cell; rows hold them together."""

    kind: ClassVar[str]
    dtype = "float32"
    per_client = True

    def present(self, context: Context) -> bool:
        return False

    def value(self, context: Context) -> list[float | None] | None:
        return (Losses().value(context) or {}).get(self.kind)

    def read(self, row: Mapping[str, Any]) -> list[float | None] | None:
        return (row["losses"] or {}).get(self.kind)


@COLUMNS.register
class LossBefore(_LossOfAKind):
    """F_i(w_t)."""

    name = "loss_before"
    kind = "before"
    order = 91


@COLUMNS.register
class LossTrain(_LossOfAKind):
    """The mean over the last local epoch."""

    name = "loss_train"
    kind = "train"
    order = 92


@COLUMNS.register
class LossAfter(_LossOfAKind):
    """F_i(w_i)."""

    name = "loss_after"
    kind = "after"
    order = 93
