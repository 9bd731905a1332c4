"""The weighted mean of what lies between two quantiles, coordinate by coordinate: weighted medians, trimmed means.

The clients' values at a coordinate are a column, sorted by value, equal values by client. With weights of sum 1, the
client at rank r takes the interval of cumulated weight from b_r to a_r; it counts with the part of its interval that
lies between the quantiles. At a single quantile, every client whose interval touches it counts once: one value, or
the two beside it. A boundary within `SLACK` of a quantile lies on it.

Compiled and not, by any number of threads, the bytes are the same: each column is a sum in the order of its ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedalpha.fast.compiled import numba_version
from fedalpha.fast.threads import in_parts

Array = NDArray[np.float64]
Rows = Sequence[NDArray[Any]]

SLACK = 1e-12
"""Smaller differences between sums of weights count as rounding."""
_WORTH_COMPILING = 1 << 17
"""Fewer values are sorted before numba would be imported."""
_VALUES = 1 << 17
"""Values that NumPy sorts at a time."""
_PIECE = 1 << 14
"""Columns of a part of the work; a multiple of the columns that are sorted together."""


def between(rows: Rows, weights: Array, low: float, high: float, out: NDArray[Any]) -> None:
    """``out`` = the weighted mean of each column of ``rows`` between the quantiles ``low`` and ``high``.

    ``rows`` holds one flat array per client, of one floating dtype; ``weights`` > 0.

    >>> found = np.empty(2)
    >>> rows = [np.array([1.0, 30.0]), np.array([2.0, 10.0]), np.array([3.0, 20.0])]
    >>> between(rows, np.array([0.6, 0.2, 0.2]), 0.5, 0.5, found)
    >>> found
    array([ 1., 30.])
    """
    weights = weights / math.fsum(weights.tolist())
    large = len(rows) * len(out) >= _WORTH_COMPILING and numba_version() is not None
    if large and rows[0].dtype == np.float32:
        _compiled(rows, weights, low, high, out)
        return
    width = max(1, _VALUES // len(rows))

    def some(start: int, stop: int) -> None:
        for first in range(start, stop, width):
            part = slice(first, min(first + width, stop))
            out[part] = _by_numpy([row[part] for row in rows], weights, low, high)

    in_parts(some, len(out), _PIECE)


def keys(values: NDArray[np.float32]) -> NDArray[np.int32]:
    """Integers in the order of the floats: −0 is 0, NaN is larger than infinity."""
    bits = np.where(np.isnan(values), np.float32(np.nan), values + np.float32(0)).view(np.int32)
    return _swapped(bits)


def sort_rows(tile: NDArray[Any]) -> None:
    """Sort every column of a matrix by Batcher's merge exchange: each step compares whole runs of rows."""
    n = len(tile)
    top = 1 << max(n - 1, 1).bit_length() - 1
    p = top if n > 1 else 0
    while p > 0:
        q, r, d = top, 0, p
        while True:
            for low, high in _runs(tile, n - d, d, r, p):
                least = np.minimum(low, high)
                np.maximum(low, high, out=high)
                low[...] = least
            if q == p:
                break
            d, q, r = q - p, q // 2, p
        p //= 2


def _runs(tile: NDArray[Any], end: int, d: int, r: int, p: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """The rows i < ``end`` with i & p == r, and their partners i + d: whole runs of p rows together, then the rest."""
    whole = max(0, (end - r - p) // (2 * p) + 1) if end - r >= p else 0
    # The last of the whole runs may have no partner for the gap after it, so it is a run of its own.
    joined = max(0, whole - 1)
    if joined:
        shape = (joined, 2 * p, tile.shape[1])
        low, high = (tile[i : i + joined * 2 * p].reshape(shape)[:, :p] for i in (r, r + d))
        yield low, high
    for start in range(r + joined * 2 * p, end, 2 * p):
        count = min(p, end - start)
        yield tile[start : start + count], tile[start + d : start + d + count]


def _cumulated(weights: Array) -> tuple[Array, Array]:
    above = np.cumsum(weights)
    return above, np.concatenate([[0.0], above[:-1]])


def _shares(above: Array, below: Array, low: float, high: float) -> Array:
    """With which share ranks count, before the division by `divisor`."""
    if high - low <= SLACK:
        return ((below <= low + SLACK) & (above >= low - SLACK)).astype(np.float64)
    return _cut(above, low, high) - _cut(below, low, high)


def _cut(weights: Array, low: float, high: float) -> Array:
    """Cumulated weights, at least ``low`` and at most ``high``."""
    return np.where(weights <= low + SLACK, low, np.where(weights >= high - SLACK, high, weights))


def _by_numpy(rows: Rows, weights: Array, low: float, high: float) -> Array:
    """`between` without compiled code."""
    n, width = len(rows), len(rows[0])
    equal = bool((weights == weights[0]).all())
    if rows[0].dtype == np.float32:
        key = keys(np.stack(rows))
        if equal:
            sort_rows(key)
        else:
            pairs = (key.astype(np.int64) << 32) | np.arange(n)[:, None]
            sort_rows(pairs)
            order, key = pairs & 0xFFFFFFFF, (pairs >> 32).astype(np.int32)
        values: NDArray[Any] = _swapped(key).view(np.float32)
    else:
        stack = np.stack(rows)
        order = np.argsort(stack, axis=0, kind="stable")
        values = np.take_along_axis(stack, order, axis=0)
    total, below, counted = np.zeros(width), np.zeros(width), np.zeros(width)
    for r in range(n):
        above = below + (weights[r] if equal else weights[order[r]])
        share = _shares(above, below, low, high)
        if share.any():
            with np.errstate(invalid="ignore"):  # infinity may be among the values that do not count
                total += np.where(share > 0, share * values[r].astype(np.float64), 0.0)
            counted += share
        below = above
    return total / (counted if high - low <= SLACK else high - low)


def _swapped(bits: NDArray[np.int32]) -> NDArray[np.int32]:
    """From the bits of floats to integers in their order, and back."""
    found: NDArray[np.int32] = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return found


def _compiled(rows: Rows, weights: Array, low: float, high: float, out: NDArray[Any]) -> None:
    from fedalpha.fast.networks import by_rank, by_weight

    kept = [np.ascontiguousarray(row) for row in rows]
    addresses = np.array([row.ctypes.data for row in kept], dtype=np.uint64)
    equal = bool((weights == weights[0]).all())
    share = _shares(*_cumulated(weights), low, high)
    divisor = float(share.sum()) if high - low <= SLACK else high - low

    def some(start: int, stop: int) -> None:
        target = out[start:stop]
        if equal:
            by_rank(addresses, share, divisor, start, stop, target)
        else:
            by_weight(addresses, weights, low, high, SLACK, start, stop, target)

    in_parts(some, len(out), _PIECE)
