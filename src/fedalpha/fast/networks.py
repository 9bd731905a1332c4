"""Order statistics of many columns at once, compiled for this processor by numba.

The clients' values at a coordinate are a column. Neighbouring columns are sorted together by a sorting network: a
step compares the same two ranks of all of them, so one instruction serves as many columns as a register holds. The
network is Batcher's merge exchange for any number of values (Knuth, The Art of Computer Programming, 5.2.2 M).

Values are compared as integers that are ordered like the floats (`fedalpha.fast.columns.keys`). Where weights differ,
the integer also holds the client's place, so that equal values are ordered by client. `fedalpha.fast.columns` gives
the same bits without numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types  # type: ignore[attr-defined]
from numba.extending import intrinsic
from numpy.typing import NDArray

LANES = 16
"""Columns that are sorted together."""
TILE = 1 << 17
"""Values that are read before they are sorted: long runs of each client's memory, which stay in the cache."""
RUN = 1 << 10
"""At most this many columns are read at a time."""


def _exchange(bits: int) -> Any:
    """An intrinsic: ``LANES`` integers at one address and at another become their minima and maxima."""

    @intrinsic
    def exchange(typing: Any, low: Any, high: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            vector = ir.VectorType(ir.IntType(bits), LANES)
            first, second = (builder.inttoptr(a, vector.as_pointer()) for a in arguments)
            u, v = builder.load(first, align=bits // 8), builder.load(second, align=bits // 8)
            less = builder.icmp_signed("<", u, v)
            builder.store(builder.select(less, u, v), first, align=bits // 8)
            builder.store(builder.select(less, v, u), second, align=bits // 8)
            return context.get_dummy_value()

        return types.void(types.uint64, types.uint64), generate

    return exchange


@intrinsic
def _bits_at(typing: Any, address: Any) -> Any:
    """A number as the address of int32 values: the bits of float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.int32)(types.uint64), generate  # type: ignore[no-untyped-call]


exchange_values: Any = _exchange(32)
exchange_pairs: Any = _exchange(64)
bits_at: Any = _bits_at


@njit(nogil=True, cache=True)
def sort_columns(n: int, address: int, wide: bool) -> None:
    """Sort ``LANES`` columns of n integers that lie row by row at an address: int64 if ``wide``, otherwise int32."""
    row = np.uint64((8 if wide else 4) * LANES)
    top = 1
    while 2 * top < n:
        top *= 2
    p = top if n > 1 else 0
    while p > 0:
        q, r, d = top, 0, p
        while True:
            for start in range(r, n - d, 2 * p):
                low = np.uint64(address) + np.uint64(start) * row
                high = low + np.uint64(d) * row
                count = min(p, n - d - start)
                if wide:
                    for _ in range(count):
                        exchange_pairs(low, high)
                        low += row
                        high += row
                else:
                    for _ in range(count):
                        exchange_values(low, high)
                        low += row
                        high += row
            if q == p:
                break
            d, q, r = q - p, q // 2, p
        p //= 2


@njit(nogil=True, cache=True)
def _key(bits: np.int32) -> np.int32:
    """An integer in the order of the floats: −0 is 0, NaN is larger than infinity. Applied twice, it is the bits."""
    size = bits & np.int32(0x7FFFFFFF)
    bits = np.int32(0x7FC00000) if size > np.int32(0x7F800000) else bits
    bits = np.int32(0) if size == 0 else bits
    return bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF))


@njit(nogil=True, cache=True)
def _read(addresses: NDArray[np.uint64], start: int, stop: int, tile: NDArray[np.int32]) -> None:
    """The keys of columns start … stop, in groups of ``LANES``: tile[group, client, lane]."""
    for i in range(len(addresses)):
        bits = carray(bits_at(addresses[i]), stop)[start:stop]
        whole = len(bits) // LANES
        for group in range(whole):
            row, keys = bits[group * LANES : (group + 1) * LANES], tile[group, i]
            for lane in range(LANES):
                keys[lane] = _key(row[lane])
        for lane in range(len(bits) - whole * LANES):
            tile[whole, i, lane] = _key(bits[whole * LANES + lane])


@njit(nogil=True, cache=True)
def by_rank(
    addresses: NDArray[np.uint64],
    shares: NDArray[np.float64],
    divisor: float,
    start: int,
    stop: int,
    out: NDArray[np.float32] | NDArray[np.float64],
) -> None:
    """out[j − start] = Σ shares_r·(r-th value of column j) / divisor over the ranks with a share; equal weights."""
    n = len(addresses)
    width = max(LANES, min(RUN, TILE // n // LANES * LANES))
    tile = np.zeros((width // LANES, n, LANES), dtype=np.int32)
    values = tile.view(np.float32)
    total = np.empty(LANES)
    counted = np.nonzero(shares)[0]
    for first in range(start, stop, width):
        last = min(first + width, stop)
        _read(addresses, first, last, tile)
        for group in range((last - first + LANES - 1) // LANES):
            sort_columns(n, tile[group].ctypes.data, False)
            total[:] = 0.0
            for r in counted:
                keys, share = tile[group, r], shares[r]
                for lane in range(LANES):
                    keys[lane] ^= (keys[lane] >> np.int32(31)) & np.int32(0x7FFFFFFF)
                row = values[group, r]
                for lane in range(LANES):
                    total[lane] += share * np.float64(row[lane])
            place = first - start + group * LANES
            for lane in range(min(LANES, last - start - place)):
                out[place + lane] = total[lane] / divisor


@njit(nogil=True, cache=True)
def _cut(weight: float, low: float, high: float, slack: float) -> float:
    """A cumulated weight, at least ``low`` and at most ``high``."""
    return low if weight <= low + slack else high if weight >= high - slack else weight


@njit(nogil=True, cache=True)
def by_weight(
    addresses: NDArray[np.uint64],
    weights: NDArray[np.float64],
    low: float,
    high: float,
    slack: float,
    start: int,
    stop: int,
    out: NDArray[np.float32] | NDArray[np.float64],
) -> None:
    """out[j − start]: the weighted mean of what lies between two quantiles of column j, as `columns.shares` has it."""
    n = len(addresses)
    width = max(LANES, min(RUN, TILE // n // LANES * LANES))
    tile = np.zeros((width // LANES, n, LANES), dtype=np.int32)
    pairs = np.empty((n, LANES), dtype=np.int64)
    one = np.empty(LANES, dtype=np.int32)
    value = one.view(np.float32)
    total, below, counted = np.empty(LANES), np.empty(LANES), np.empty(LANES)
    quantile = high - low <= slack
    for first in range(start, stop, width):
        last = min(first + width, stop)
        _read(addresses, first, last, tile)
        for group in range((last - first + LANES - 1) // LANES):
            for i in range(n):
                for lane in range(LANES):
                    pairs[i, lane] = (np.int64(tile[group, i, lane]) << 32) | i
            sort_columns(n, pairs.ctypes.data, True)
            total[:] = 0.0
            below[:] = 0.0
            counted[:] = 0.0
            for r in range(n):
                for lane in range(LANES):
                    key = np.int32(pairs[r, lane] >> 32)
                    one[lane] = key ^ ((key >> np.int32(31)) & np.int32(0x7FFFFFFF))
                for lane in range(LANES):
                    above = below[lane] + weights[pairs[r, lane] & np.int64(0xFFFFFFFF)]
                    if quantile:
                        share = 1.0 if below[lane] <= low + slack and above >= low - slack else 0.0
                        counted[lane] += share
                    else:
                        share = _cut(above, low, high, slack) - _cut(below[lane], low, high, slack)
                    if share > 0:
                        total[lane] += share * np.float64(value[lane])
                    below[lane] = above
            place = first - start + group * LANES
            for lane in range(min(LANES, last - start - place)):
                out[place + lane] = total[lane] / (counted[lane] if quantile else high - low)
