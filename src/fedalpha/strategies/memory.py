"""A sparse memory of one number per client that has taken part."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedalpha.strategies.base import State
from fedalpha.strategies.simplex import Array


def recall(memory: State, ids: NDArray[np.int64], default: float) -> Array:
    """Values remembered for ``ids`` in a sparse memory ``{"ids", "values"}`` (ids sorted)."""
    values = np.full(len(ids), default)
    if memory:
        position = np.searchsorted(memory["ids"], ids)
        position = np.minimum(position, len(memory["ids"]) - 1)
        known = memory["ids"][position] == ids
        values[known] = memory["values"][position[known]]
    return values


def remember(memory: State, ids: NDArray[np.int64], values: Array) -> State:
    """The sparse memory with ``ids`` set to ``values``; it has entries only for clients that have taken part."""
    if not memory:
        order = np.argsort(ids)
        return {"ids": ids[order], "values": values[order]}
    all_ids = np.union1d(memory["ids"], ids)
    merged = np.empty(len(all_ids))
    merged[np.searchsorted(all_ids, memory["ids"])] = memory["values"]
    merged[np.searchsorted(all_ids, ids)] = values
    return {"ids": all_ids, "values": merged}
