"""bfloat16: torch rounds to the nearest one as we do, and the mean over the draws is the value."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedalpha.rng import generator
from fedalpha.upload import bfloat16

LARGEST = float(torch.finfo(torch.bfloat16).max)
FINITE = arrays.arrays(
    np.float32, st.integers(1, 40), elements=st.floats(-LARGEST, LARGEST, width=32, allow_subnormal=True)
)
QUICK = settings(max_examples=100, deadline=None)


class Always:
    """A generator that draws one number only."""

    def __init__(self, value: int) -> None:
        self.value = value

    def integers(self, low: int, high: int, size: int, dtype: Any) -> Any:
        assert low <= self.value < high
        return np.full(size, self.value, dtype)


def read(upload: bfloat16, x: Any, draw: int) -> Any:
    return upload.decode(upload.encode(x, Always(draw)), len(x))  # type: ignore[arg-type]


@given(x=FINITE)
@QUICK
def test_nearest_is_the_rounding_of_torch(x: Any) -> None:
    expected = torch.from_numpy(x).to(torch.bfloat16).to(torch.float32).numpy()
    np.testing.assert_array_equal(read(bfloat16(rounding="nearest"), x, 0), expected)


@given(x=FINITE)
@QUICK
def test_the_mean_over_all_draws_is_the_value(x: Any) -> None:
    """The next bfloat16 is taken by exactly as many of the 2^16 draws as the lower half says."""
    upload = bfloat16()
    lower = x.view(np.uint32) & np.uint32(0xFFFF)
    below, above = read(upload, x, 0), read(upload, x, 0xFFFF)
    for value, share, low, high in zip(x.tolist(), lower.tolist(), below.tolist(), above.tolist(), strict=True):
        chance = Fraction(share, 2**16)
        assert (1 - chance) * Fraction(low) + chance * Fraction(high) == Fraction(value)
        if share:
            one = np.array([value], np.float32)
            assert read(upload, one, 2**16 - share - 1) == low
            assert read(upload, one, 2**16 - share) == high


@pytest.mark.parametrize("rounding", ["random", "nearest"])
def test_values_beyond_the_largest_become_the_largest(rounding: str) -> None:
    most = np.finfo(np.float32).max
    assert read(bfloat16(rounding=rounding), np.array([most, -most], np.float32), 0xFFFF).tolist() == [
        LARGEST,
        -LARGEST,
    ]


@pytest.mark.parametrize("rounding", ["random", "nearest"])
def test_values_that_are_bfloat16_are_exact(rounding: str) -> None:
    x = np.arange(2**16, dtype=np.uint32) << 16
    x = x.astype(np.uint32).view(np.float32)
    x = x[np.isfinite(x)]
    np.testing.assert_array_equal(read(bfloat16(rounding=rounding), x, 0xFFFF), x)


def test_a_vector_of_many_pieces_is_the_same_as_its_parts() -> None:
    x = generator(0, "x").standard_normal((1 << 20) + 5).astype(np.float32)
    upload = bfloat16(rounding="nearest")
    expected = torch.from_numpy(x).to(torch.bfloat16).to(torch.float32).numpy()
    np.testing.assert_array_equal(upload.decode(upload.encode(x, generator(0, "u")), len(x)), expected)
