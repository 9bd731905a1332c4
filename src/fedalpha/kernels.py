"""Loops compiled for this processor by numba. They give the bits of the torch code that they stand in for.

Maxima and selections are exact. Sums are formed in the same order, and a product is rounded before it is added:
numba fuses the two only when asked for fast mathematics.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit, types  # type: ignore[attr-defined]
from numba.extending import intrinsic
from numpy.typing import NDArray

NOWHERE = 4
"""The place of a window whose maximum ReLU has cut off."""
PIECE = 1 << 9
"""Elements of a sum that stay in the nearest cache while all clients are added."""
WIDE = 1 << 12
"""The same where each client's values lie elsewhere in memory: longer runs are read faster."""


@njit(nogil=True, cache=True)
def accumulate(rows: NDArray[np.float32], alpha: NDArray[np.float64], total: NDArray[np.float64]) -> None:
    """total += alpha_i·rows_i for each i in order."""
    for start in range(0, len(total), PIECE):
        end = min(start + PIECE, len(total))
        piece = total[start:end]
        for i in range(len(alpha)):
            row, weight = rows[i, start:end], alpha[i]
            for j in range(end - start):
                piece[j] += np.float64(row[j]) * weight


@intrinsic
def _pointer(typing: Any, address: Any) -> Any:
    """A number as the address of float32 values."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.float32)(types.uint64), generate  # type: ignore[no-untyped-call]


pointer: Any = _pointer
"""As compiled code calls it."""


@njit(nogil=True, cache=True)
def sum_blocks(
    addresses: NDArray[np.uint64],
    alpha: NDArray[np.float64],
    ends: NDArray[np.int64],
    start: int,
    stop: int,
    total: NDArray[np.float64],
) -> None:
    """total[start:stop] = Σ alpha_i·values_i, block by block, where client i's values lie at its address.

    Four clients at a time, added in order: memory is read in four streams.
    """
    part = np.empty(WIDE)
    for first in range(start, stop, WIDE):
        count = min(WIDE, stop - first)
        mine = total[first : first + count]
        mine[:] = 0.0
        i = 0
        for end in ends:
            part[:] = 0.0
            while i + 4 <= end:
                a, b, c, d = alpha[i], alpha[i + 1], alpha[i + 2], alpha[i + 3]
                u = carray(pointer(addresses[i]), stop)[first:stop]
                v = carray(pointer(addresses[i + 1]), stop)[first:stop]
                w = carray(pointer(addresses[i + 2]), stop)[first:stop]
                x = carray(pointer(addresses[i + 3]), stop)[first:stop]
                for j in range(count):
                    s = part[j] + np.float64(u[j]) * a
                    s = s + np.float64(v[j]) * b
                    s = s + np.float64(w[j]) * c
                    part[j] = s + np.float64(x[j]) * d
                i += 4
            while i < end:
                u = carray(pointer(addresses[i]), stop)[first:stop]
                for j in range(count):
                    part[j] += np.float64(u[j]) * alpha[i]
                i += 1
            for j in range(count):
                mine[j] += part[j]


@njit(nogil=True, cache=True)
def pool(x: NDArray[np.float32], out: NDArray[np.float32], place: NDArray[np.uint8], relu: bool) -> None:
    """2×2 max pooling of (sample, row, column, channel), with ReLU if ``relu``.

    ``place`` says which of a window's four values (row by row) is the maximum, the first of equals. NaN wins.
    """
    samples, rows, columns, channels = out.shape
    for n in range(samples):
        for i in range(rows):
            for j in range(columns):
                a, b = x[n, 2 * i, 2 * j], x[n, 2 * i, 2 * j + 1]
                c, d = x[n, 2 * i + 1, 2 * j], x[n, 2 * i + 1, 2 * j + 1]
                values, places = out[n, i, j], place[n, i, j]
                for k in range(channels):
                    best, at = a[k], np.uint8(0)
                    if b[k] > best or b[k] != b[k]:
                        best, at = b[k], np.uint8(1)
                    if c[k] > best or c[k] != c[k]:
                        best, at = c[k], np.uint8(2)
                    if d[k] > best or d[k] != d[k]:
                        best, at = d[k], np.uint8(3)
                    if relu and best <= 0:
                        best, at = np.float32(0), np.uint8(NOWHERE)
                    values[k], places[k] = best, at


@njit(nogil=True, cache=True)
def spread(gradient: NDArray[np.float32], place: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
    """The gradient of `pool`: each at the place of its maximum, zero elsewhere. All of ``out`` is written."""
    samples, rows, columns, channels = gradient.shape
    zero = np.float32(0)
    for n in range(samples):
        for i in range(rows):
            for half in range(2):
                line = out[n, 2 * i + half]
                for j in range(columns):
                    values, places = gradient[n, i, j], place[n, i, j]
                    for side in range(2):
                        here, at = line[2 * j + side], np.uint8(2 * half + side)
                        for k in range(channels):
                            here[k] = values[k] if places[k] == at else zero
                line[2 * columns :] = zero
        out[n, 2 * rows :] = zero
