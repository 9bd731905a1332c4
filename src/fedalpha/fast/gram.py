"""Norms and products of a cohort's updates, with the same bytes in every engine and in a live federation.

`gram` is one product per slice of coordinates, each on one thread, because the number of threads decides in which
order a BLAS adds. Threads share slices or blocks of the matrix, whose bounds depend on the cohort alone.

Cohorts of `MANY` clients and more are multiplied in float32, which is twice as fast. Every slice of `DEPTH`
coordinates is scaled to the range of float32 client by client, and slices are added in float64. An entry differs from
the exact ⟨x_i, x_j⟩ by at most (`DEPTH` + 2)·2⁻²⁴·‖x_i‖·‖x_j‖ ≈ 3.1e-5·‖x_i‖·‖x_j‖, whatever the number of
coordinates, and in practice by about 1e-7 of it. The diagonal is that of `norms`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from fedalpha.fast.compiled import numba_version
from fedalpha.fast.threads import in_order, in_parts

COLUMNS = 1 << 14
"""At most this many coordinates at a time."""
VALUES = 1 << 20
"""At most this many values at a time."""
MANY = 256
"""The least cohort that is multiplied in float32."""
DEPTH = 1 << 9
"""Coordinates that are added in float32."""
_ROWS = 1 << 7
"""Rows and columns of a block of a large matrix."""
_LANES = 1 << 12
"""Partial sums of squares, which are then added in pairs."""
_SUMS = 1 << 6
"""So many sums of squares are left; their sum is rounded once."""
_WORTH_COMPILING = 1 << 17
_WORTH_COMPILING_TOGETHER = 1 << 22
"""The values of an array in all models."""

Arrays = Mapping[str, NDArray[Any]]
Matrix = NDArray[np.float64]


def gram(models: Sequence[Arrays], current: Arrays) -> Matrix:
    """⟨w_i − w_t, w_j − w_t⟩ over all floating arrays of ``current`` (w_t).

    >>> gram([{"w": np.array([1.0, 3.0])}, {"w": np.array([1.0, 1.0])}], {"w": np.ones(2)})
    array([[4., 0.],
           [0., 0.]])
    """
    floats = {name: old for name, old in current.items() if np.issubdtype(old.dtype, np.floating)}
    narrow = len(models) >= MANY and all(old.dtype == np.float32 for old in floats.values())
    found = np.zeros((len(models), len(models)))
    with one_blas_thread():
        for name, old in floats.items():
            flat = [model[name].reshape(-1) for model in models]
            (_add_narrow if narrow else _add_wide)(found, flat, old.reshape(-1))
    if narrow:
        for i in range(len(found)):
            found[i, i + 1 :] = found[i + 1 :, i]
        np.fill_diagonal(found, norms(models, current) ** 2)
    return found


def norms(models: Sequence[Arrays], current: Arrays, compiles: bool = True) -> Matrix:
    """‖w_i − w_t‖ over all floating arrays of ``current`` (w_t), model by model.

    ``compiles``: whether numba may be imported for it; the bytes are the same without.

    >>> norms([{"w": np.array([4.0, 5.0])}], {"w": np.ones(2)})
    array([5.])
    """
    floats = {name: old.reshape(-1) for name, old in current.items() if np.issubdtype(old.dtype, np.floating)}
    found = np.empty(len(models))
    large = {name: compiles and _is_large(len(models), old) for name, old in floats.items()}

    def some(start: int, stop: int) -> None:
        for i in range(start, stop):
            sums = [_squares(models[i][name].reshape(-1), old, large[name]) for name, old in floats.items()]
            found[i] = math.sqrt(math.fsum(part for lanes in sums for part in lanes.tolist()))

    in_parts(some, len(models), 1)
    return found


def _add_wide(found: Matrix, flat: Sequence[NDArray[Any]], base: NDArray[Any]) -> None:
    """Add the products of one array in float64; slices are added in their order."""
    width = max(1, min(COLUMNS, VALUES // max(len(flat), 1)))

    def product(start: int, stop: int) -> Matrix:
        part = slice(start, stop)
        moves = np.empty((len(flat), stop - start))
        for row, values in zip(moves, flat, strict=True):
            np.subtract(values[part], base[part], out=row, dtype=np.float64)
        result: Matrix = moves @ moves.T
        return result

    for part in in_order(product, len(base), width):
        found += part


def _add_narrow(found: Matrix, flat: Sequence[NDArray[Any]], base: NDArray[Any]) -> None:
    """Add the products of one float32 array below the diagonal: in float32 within a slice, then in float64."""
    n = len(flat)
    moves, scale = np.empty((n, DEPTH), dtype=np.float32), np.empty(n)
    starts = range(0, n, _ROWS)
    blocks = [(i, j) for i in starts for j in starts if j <= i]

    for start in range(0, len(base), DEPTH):
        part = slice(start, min(start + DEPTH, len(base)))
        wide = base[part].astype(np.float64)
        here = moves[:, : len(wide)]

        def load(first: int, last: int, part: slice = part, wide: Matrix = wide, here: NDArray[Any] = here) -> None:
            rows = np.stack([values[part] for values in flat[first:last]]) - wide
            # A power of two loses no bit. Where nothing moves, or nothing is finite, the row is left as it is.
            scale[first:last] = np.exp2(np.clip(np.frexp(np.abs(rows).max(axis=1))[1], -900, 900))
            here[first:last] = rows / scale[first:last, None]

        def multiply(first: int, last: int, here: NDArray[Any] = here) -> None:
            for i, j in blocks[first:last]:
                rows, columns = slice(i, i + _ROWS), slice(j, j + _ROWS)
                product = (here[rows] @ here[columns].T).astype(np.float64)
                product *= scale[rows, None]
                product *= scale[columns]
                found[rows, columns] += product

        in_parts(load, n, _ROWS)
        in_parts(multiply, len(blocks), 4)


def _is_large(models: int, base: NDArray[Any]) -> bool:
    """Whether the squares of an array are worth the compiled loop, which gives the same bytes."""
    worth = len(base) >= _WORTH_COMPILING or len(base) * models >= _WORTH_COMPILING_TOGETHER
    return worth and base.dtype == np.float32 and numba_version() is not None


def _squares(values: NDArray[Any], base: NDArray[Any], compiled: bool) -> Matrix:
    """(values − base)² in `_SUMS` sums, or in fewer: coordinate j is added to sum j modulo their number."""
    lanes = _in_lanes(values, base, compiled)
    while len(lanes) > _SUMS and len(lanes) % 2 == 0:  # the sum of thousands would take longer than that of the squares
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    return lanes


def _in_lanes(values: NDArray[Any], base: NDArray[Any], compiled: bool) -> Matrix:
    lanes = np.zeros(min(_LANES, len(base)))
    if compiled and values.dtype == np.float32:
        from fedalpha.fast.kernels import add_squares

        add_squares(values, base, lanes)
        return lanes
    for start in range(0, len(base), _LANES):
        part = slice(start, start + _LANES)
        moves = np.subtract(values[part], base[part], dtype=np.float64)
        moves *= moves
        lanes[: len(moves)] += moves
    return lanes


def one_blas_thread() -> AbstractContextManager[Any]:
    """A context in which each product is computed by one thread, so that its bytes depend on its factors alone."""
    limited: AbstractContextManager[Any] = _libraries().limit(limits=1, user_api="blas")
    return limited


@cache
def _libraries() -> ThreadpoolController:
    """The libraries of this process that have threads of their own; looking for them takes milliseconds."""
    return ThreadpoolController()
