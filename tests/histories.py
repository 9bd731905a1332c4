"""Comparing histories to the bit."""

from __future__ import annotations

import copy
from typing import Any

from fedalpha.analysis.history import History


def without_times(history: History) -> list[dict[str, Any]]:
    """The rows of a history, times aside."""
    rows = copy.deepcopy(history.rows)
    for row in rows:
        del row["seconds"]
    return rows


def same_model(a: History, b: History) -> bool:
    """Whether two final models have the same bytes."""
    return a.model.keys() == b.model.keys() and all(
        a.model[k].dtype == b.model[k].dtype and a.model[k].numpy().tobytes() == b.model[k].numpy().tobytes()
        for k in a.model
    )
