"""Weighted medians and trimmed means of columns: against slow references, and the same bytes on every path."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from fedalpha.fast import columns, threads
from fedalpha.fast.columns import between, keys, sort_rows
from fedalpha.fast.compiled import numba_version

QUANTILES = [(0.5, 0.5), (0.2, 0.8), (0.0, 1.0), (0.45, 0.55)]
needs_numba = pytest.mark.skipif(numba_version() is None, reason="numba is not installed or switched off")


def slow(rows: np.ndarray, weights: np.ndarray, low: float, high: float) -> np.ndarray:
    """The definition in exact fractions, column by column; weights within 1e-12 of a quantile lie on it."""
    exact = [Fraction(float(w)) for w in weights]
    total, found = sum(exact), []
    for column in rows.T:
        below, parts = Fraction(0), []
        for i in sorted(range(len(column)), key=lambda i: (float(column[i]), i)):
            above = below + exact[i] / total
            if low == high:
                share = Fraction(int(below <= low + 1e-12 and above >= low - 1e-12))
            else:
                share = cut(above, low, high) - cut(below, low, high)
            parts.append((share, Fraction(float(column[i]))))
            below = above
        found.append(float(sum(s * v for s, v in parts) / sum(s for s, _ in parts)))
    return np.array(found)


def cut(weight: Fraction, low: float, high: float) -> Fraction:
    return min(max(weight, Fraction(low)), Fraction(high))


def weights_of(kind: str, n: int, rng: np.random.Generator) -> np.ndarray:
    match kind:
        case "equal":
            return np.full(n, 1 / n)
        case "random":
            return rng.dirichlet(np.ones(n))
        case "halves":  # sums of many subsets are exactly a half
            return rng.integers(1, 3, n) / 8.0
    found = 10.0 ** rng.uniform(-30, 0, n)
    return np.asarray(found / found.sum())


def rows_of(n: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """Normal numbers, many equal numbers, zeros of both signs, huge numbers."""
    rows = rng.normal(size=(n, d)).astype(np.float32)
    rows[:, d // 4 : d // 2] = rng.integers(-2, 3, (n, d // 2 - d // 4))
    rows[:, d // 2 : 3 * d // 4] = rng.choice(np.float32([0.0, -0.0, 1e-45, -1e-45]), (n, 3 * d // 4 - d // 2))
    rows[: n // 3, 3 * d // 4 :] *= np.float32(1e30)
    return rows


@pytest.mark.parametrize("kind", ["equal", "random", "halves", "extreme"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 16, 33])
def test_it_is_the_definition_in_exact_fractions(kind: str, dtype: type, n: int) -> None:
    rng = np.random.default_rng(n)
    weights, rows = weights_of(kind, n, rng), rows_of(n, 24, rng).astype(dtype)
    for low, high in QUANTILES:
        found = np.empty(24)
        between(list(rows), weights, low, high, found)
        expected, size = slow(rows, weights, low, high), np.abs(rows.astype(np.float64)).max(axis=0)
        assert (np.abs(found - expected) <= 1e-11 * np.maximum(size, np.abs(expected))).all()


@needs_numba
@pytest.mark.parametrize("kind", ["equal", "random", "halves", "extreme"])
@pytest.mark.parametrize("n", [1, 2, 5, 31, 100, 257])
def test_compiled_or_not_by_any_number_of_threads_the_bytes_are_the_same(
    kind: str, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(n)
    weights, rows = weights_of(kind, n, rng), list(rows_of(n, 333, rng))
    rows[0][[5, 300]] = np.inf, np.nan
    monkeypatch.setattr(columns, "_PIECE", 64)
    for low, high in QUANTILES:
        found = []
        for least, cores in ((math.inf, 1), (math.inf, 3), (0, 1), (0, 3)):
            monkeypatch.setattr(columns, "_WORTH_COMPILING", least)
            monkeypatch.setattr(threads, "cores", lambda cores=cores: cores)
            out = np.empty(333, dtype=np.float32)
            with np.errstate(over="ignore", invalid="ignore"):
                between(rows, weights, low, high, out)
            found.append(out.tobytes())
        assert len(set(found)) == 1


def test_equal_values_give_that_value_and_half_on_each_side_gives_the_middle() -> None:
    out = np.empty(2, dtype=np.float32)
    rows = [np.float32([0.1, 1]), np.float32([0.1, 2]), np.float32([0.1, 3]), np.float32([0.1, 4])]
    for low, high in QUANTILES:
        between(rows, np.array([0.1, 0.2, 0.3, 0.4]), low, high, out)
        assert out[0] == np.float32(0.1)
    between(rows, np.full(4, 0.1), 0.5, 0.5, out)
    assert out[1] == 2.5
    between(rows, np.array([0.1, 0.2, 0.3, 0.6]), 0.5, 0.5, out)  # 0.1 + 0.2 + 0.3 is not 0.6 in float64
    assert out[1] == 3.5


def test_a_lie_at_the_cut_does_not_leak_through_rounding() -> None:
    """Eight tenths in float64 sum to less than 0.8: what is left must not let 1e30 in."""
    rows = [np.float32([i]) for i in range(8)] + [np.float32([1e30])] * 2
    out = np.empty(1)
    between(rows, np.full(10, 0.1), 0.2, 0.8, out)
    assert out[0] == pytest.approx(4.5)


@pytest.mark.parametrize("n", [*range(1, 40), 63, 64, 65, 100, 127, 129])
def test_the_network_sorts_any_number_of_rows(n: int) -> None:
    tile = np.random.default_rng(n).integers(0, n, (n, 50))
    expected = np.sort(tile, axis=0)
    sort_rows(tile)
    assert np.array_equal(tile, expected)


def test_keys_are_ordered_like_floats() -> None:
    values = np.float32([-np.inf, -1e38, -1, -1e-45, -0.0, 0.0, 1e-45, 1, 1e38, np.inf, np.nan])
    found = keys(values)
    assert found[4] == found[5]
    assert (np.diff(np.delete(found.astype(np.int64), 4)) > 0).all()
    assert keys(np.float32([-np.nan]))[0] == found[-1]
