"""Loops compiled for this processor by numba. They give the bits of the torch code that they stand in for.

Maxima and selections are exact. Sums are formed in the same order, and a product is rounded before it is added:
numba fuses the two only when asked for fast mathematics.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

NOWHERE = 4
"""The place of a window whose maximum ReLU has cut off."""


PIECE = 1 << 9
"""Elements of a sum that stay in the nearest cache while all clients are added."""


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
