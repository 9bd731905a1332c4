"""Loops compiled for this processor by numba.

Sums over clients and pooling give the same bits as the torch code that they replace: maxima and selections are
exact, sums are formed in the same order, and a product is rounded before it is added (numba fuses the two only if
``fastmath`` allows it). The convolution of a first layer rounds differently.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit, types  # type: ignore[attr-defined]
from numba.extending import intrinsic
from numpy.typing import NDArray

NOWHERE = 4
"""The place of a window whose maximum is cut off by ReLU."""
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


def load() -> None:
    """Load the machine code that adds models, and what numba needs for it: 40 MB, which forked processes share."""
    accumulate(np.zeros((1, 1), np.float32), np.zeros(1), np.zeros(1))


@intrinsic
def _pointer(typing: Any, address: Any) -> Any:
    """A number as the address of float32 values."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.float32)(types.uint64), generate  # type: ignore[no-untyped-call]


pointer: Any = _pointer
"""`_pointer`, as compiled code calls it."""


@njit(nogil=True, cache=True)
def add_blocks(
    addresses: NDArray[np.uint64],
    alpha: NDArray[np.float64],
    ends: NDArray[np.int64],
    start: int,
    stop: int,
    total: NDArray[np.float64],
) -> None:
    """total[start:stop] += Σ alpha_i·values_i, block by block, where client i's values lie at its address.

    Four clients at a time, added in order: memory is read in four streams. Where every block has one client, products
    are added to the total at once, which gives the same bytes.
    """
    alone = True
    for place, end in enumerate(ends):
        alone = alone and end == place + 1
    room = np.empty(WIDE)
    for first in range(start, stop, WIDE):
        count = min(WIDE, stop - first)
        mine = total[first : first + count]
        part = mine if alone else room[:count]
        i = 0
        for end in ends[-1:] if alone else ends:
            if not alone:
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
            if not alone:
                for j in range(count):
                    mine[j] += part[j]


@njit(nogil=True, cache=True)
def add_squares(values: NDArray[np.float32], base: NDArray[np.float32], lanes: NDArray[np.float64]) -> None:
    """Add (values − base)² to the lanes, coordinate j to lane j modulo their number."""
    for start in range(0, len(base), len(lanes)):
        end = min(start + len(lanes), len(base))
        new, old = values[start:end], base[start:end]
        for j in range(end - start):
            move = np.float64(new[j]) - np.float64(old[j])
            lanes[j] += move * move


@njit(nogil=True, cache=True)
def pool(x: NDArray[np.float32], out: NDArray[np.float32], place: NDArray[np.uint8], relu: bool) -> None:
    """2×2 max pooling of (sample, row, column, channel), with ReLU if ``relu``.

    ``place`` says which of a window's four values (row by row) is the maximum, the first of equals.
    NaN counts as the maximum.
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
def four(row: NDArray[np.float32], start: int) -> tuple[np.float32, np.float32, np.float32, np.float32]:
    """Four neighbouring values. A 2×2 pool over a 3×3 convolution reads four values from each of four rows."""
    return row[start], row[start + 1], row[start + 2], row[start + 3]


@njit(nogil=True, cache=True, fastmath={"contract"})
def convolve_and_pool(
    x: NDArray[np.float32],
    w: NDArray[np.float32],
    out: NDArray[np.float32],
    place: NDArray[np.int32],
    relu: bool,
) -> None:
    """A 3×3 convolution of images (sample, row, column), then `pool`. ``w``: nine weights and the bias, by channel.

    The four values that are pooled never leave the registers. Without gradients ``place`` has room for one window only,
    which is overwritten.
    """
    samples, rows, columns, channels = out.shape
    kept = 1 if place.size > channels else 0
    for n in range(samples):
        for i in range(rows):
            for j in range(columns):
                a0, a1, a2, a3 = four(x[n, 2 * i], 2 * j)
                b0, b1, b2, b3 = four(x[n, 2 * i + 1], 2 * j)
                c0, c1, c2, c3 = four(x[n, 2 * i + 2], 2 * j)
                d0, d1, d2, d3 = four(x[n, 2 * i + 3], 2 * j)
                values, places = out[n, i, j], place[kept * n, kept * i, kept * j]
                for k in range(channels):
                    w0, w1, w2, w3, w4 = w[0, k], w[1, k], w[2, k], w[3, k], w[4, k]
                    w5, w6, w7, w8, s = w[5, k], w[6, k], w[7, k], w[8, k], w[9, k]
                    p = s + a0 * w0 + a1 * w1 + a2 * w2 + b0 * w3 + b1 * w4 + b2 * w5 + c0 * w6 + c1 * w7 + c2 * w8
                    q = s + a1 * w0 + a2 * w1 + a3 * w2 + b1 * w3 + b2 * w4 + b3 * w5 + c1 * w6 + c2 * w7 + c3 * w8
                    r = s + b0 * w0 + b1 * w1 + b2 * w2 + c0 * w3 + c1 * w4 + c2 * w5 + d0 * w6 + d1 * w7 + d2 * w8
                    t = s + b1 * w0 + b2 * w1 + b3 * w2 + c1 * w3 + c2 * w4 + c3 * w5 + d1 * w6 + d2 * w7 + d3 * w8
                    at = np.int32(0)
                    if q > p or q != q:
                        p, at = q, np.int32(1)
                    if r > p or r != r:
                        p, at = r, np.int32(2)
                    if t > p or t != t:
                        p, at = t, np.int32(3)
                    if relu and p <= 0:
                        p, at = np.float32(0), np.int32(NOWHERE)
                    values[k], places[k] = p, at


@njit(nogil=True, cache=True, fastmath={"contract"})
def weigh_patches(
    x: NDArray[np.float32], gradient: NDArray[np.float32], place: NDArray[np.int32], w: NDArray[np.float32]
) -> None:
    """The gradient of `convolve_and_pool` with respect to its ``w``, added to ``w``: only maxima have a gradient."""
    samples, rows, columns, channels = gradient.shape
    zero = np.float32(0)
    for n in range(samples):
        for i in range(rows):
            for j in range(columns):
                a0, a1, a2, a3 = four(x[n, 2 * i], 2 * j)
                b0, b1, b2, b3 = four(x[n, 2 * i + 1], 2 * j)
                c0, c1, c2, c3 = four(x[n, 2 * i + 2], 2 * j)
                d0, d1, d2, d3 = four(x[n, 2 * i + 3], 2 * j)
                values, places = gradient[n, i, j], place[n, i, j]
                for k in range(channels):
                    value, at = values[k], places[k]
                    p = value if at == 0 else zero
                    q = value if at == 1 else zero
                    r = value if at == 2 else zero
                    t = value if at == 3 else zero
                    w[0, k] += a0 * p + a1 * q + b0 * r + b1 * t
                    w[1, k] += a1 * p + a2 * q + b1 * r + b2 * t
                    w[2, k] += a2 * p + a3 * q + b2 * r + b3 * t
                    w[3, k] += b0 * p + b1 * q + c0 * r + c1 * t
                    w[4, k] += b1 * p + b2 * q + c1 * r + c2 * t
                    w[5, k] += b2 * p + b3 * q + c2 * r + c3 * t
                    w[6, k] += c0 * p + c1 * q + d0 * r + d1 * t
                    w[7, k] += c1 * p + c2 * q + d1 * r + d2 * t
                    w[8, k] += c2 * p + c3 * q + d2 * r + d3 * t
                    w[9, k] += p + q + r + t


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
