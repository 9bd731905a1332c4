"""Every registered upload: its text, what it sends, how wrong what is read can be, and what it refuses to read."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedalpha.rng import generator
from fedalpha.upload import UPLOADS, Upload, bfloat16, feedback, quantised, sparse
from fedalpha.upload.sparse import largest

EXAMPLES = [text for entry in UPLOADS for text in entry.examples]
QUICK = settings(max_examples=60, deadline=None)
VECTORS = arrays.arrays(
    np.float32, st.integers(0, 40), elements=st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=True)
)


class Fixed:
    """A generator whose uniform draws are all one number."""

    def __init__(self, value: float) -> None:
        self.value = value

    def random(self, size: int) -> Any:
        return np.full(size, self.value)


def through(upload: Upload, x: Any, seed: int = 0) -> Any:
    return upload.decode(upload.encode(x, generator(seed, "upload")), len(x))


def inner(upload: Upload) -> Upload:
    return upload.inner if isinstance(upload, feedback) else upload


@pytest.mark.parametrize("text", EXAMPLES)
def test_text_parses_back_to_an_equal_object(text: str) -> None:
    assert UPLOADS.parse(str(UPLOADS.parse(text))) == UPLOADS.parse(text)


@pytest.mark.parametrize("entry", list(UPLOADS), ids=lambda entry: entry.name)
def test_it_says_what_it_is(entry: Any) -> None:
    assert entry.formula
    assert entry.reference
    assert entry.summary


@pytest.mark.parametrize("text", EXAMPLES)
@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 511, 512, 513, 1500])
def test_what_is_sent_has_the_announced_form_and_zero_stays_zero(text: str, size: int) -> None:
    upload = UPLOADS.parse(text)
    for x in (generator(0, "x").standard_normal(size).astype(np.float32), np.zeros(size, np.float32)):
        packed = upload.encode(x, generator(0, "upload"))
        assert {name: (value.dtype, len(value)) for name, value in packed.items()} == upload.forms(size)
        assert sum(value.nbytes for value in packed.values()) == upload.nbytes(size)
        read = upload.decode(packed, size)
        assert (read.dtype, read.shape) == (np.float32, (size,))
        assert x.any() or not read.any()


@pytest.mark.parametrize("text", EXAMPLES)
@given(x=VECTORS, seed=st.integers(0, 9))
@QUICK
def test_the_error_is_within_the_stated_bound(text: str, x: Any, seed: int) -> None:
    upload = inner(UPLOADS.parse(text))
    exact, read = x.astype(np.float64), through(upload, x, seed).astype(np.float64)
    error = np.abs(read - exact)
    if isinstance(upload, quantised):
        for start in range(0, len(x), upload.block):
            part = slice(start, start + upload.block)
            scale = np.abs(exact[part]).max()
            step = scale / upload.levels * (0.5 if upload.rounding == "nearest" else 1.0)
            assert (error[part] <= step + 2.0**-23 * scale + 2.0**-149).all()
            at = np.argmax(np.abs(exact[part]))
            assert read[part][at] == exact[part][at]  # the largest value of a block is exact
    elif isinstance(upload, bfloat16):
        assert (
            error <= np.maximum(np.abs(exact) * 2.0 ** (-8 if upload.rounding == "nearest" else -7), 2.0**-133)
        ).all()
    else:
        assert isinstance(upload, sparse)
        kept = largest(np.abs(x), upload.count(len(x)))
        np.testing.assert_array_equal(read[kept], exact[kept])
        rest = np.delete(exact, kept)
        assert not np.delete(read, kept).any()
        assert not len(rest) or np.abs(rest).max() <= np.abs(exact[kept]).min()


@pytest.mark.parametrize("text", ["quantised", "quantised(bits=4)", "quantised(bits=2, block=64)"])
@given(x=VECTORS)
@QUICK
def test_the_mean_over_the_draws_is_the_value_where_it_is_said(text: str, x: Any) -> None:
    """Exactly, in rational numbers: each of the two neighbours times its chance."""
    upload = UPLOADS.parse(text)
    assert isinstance(upload, quantised)
    scales = upload.encode(x, generator(0, "upload"))["scales"]
    for place, value in enumerate(x.tolist()):
        scale = float(scales[place // upload.block])
        low, chance = (float(found[0]) for found in upload.neighbours(np.array([value]), np.array([scale])))
        mean = (Fraction(low) * (1 - Fraction(chance)) + Fraction(low + 1) * Fraction(chance)) / upload.levels
        assert 0 <= chance <= 1
        assert -upload.levels <= low <= upload.levels - (chance > 0)
        assert abs(mean * Fraction(scale) - Fraction(value)) <= Fraction(scale) * Fraction(1, 2**50)


def test_the_next_code_is_taken_with_that_chance() -> None:
    upload, x = quantised(bits=4, block=3), np.array([0.3, -0.8, 1.0], np.float32)
    low, chance = upload.neighbours(x.astype(np.float64), np.ones(3))
    for u in (0.0, 0.05, 0.35, 0.45, 0.95):
        read = upload.decode(upload.encode(x, Fixed(u)), 3)  # type: ignore[arg-type]
        np.testing.assert_array_equal(np.rint(read * 7), low + (u < chance))


def test_only_random_rounding_is_called_unbiased() -> None:
    assert {text for text in EXAMPLES if UPLOADS.parse(text).unbiased} == {
        "bfloat16",
        "quantised",
        "quantised(bits=4)",
        "quantised(bits=2, block=64)",
    }


@pytest.mark.parametrize(
    "text", ["sparse(share=0.1)", "quantised(bits=4, rounding=nearest)", "quantised(bits=2, rounding=nearest)"]
)
@given(x=VECTORS)
@QUICK
def test_what_is_lost_is_shorter_than_the_vector_where_feedback_needs_it(text: str, x: Any) -> None:
    upload, exact = UPLOADS.parse(text), x.astype(np.float64)
    lost = exact - through(upload, x)
    assert (np.abs(lost) <= np.abs(exact) * (1 + 2.0**-20)).all()
    assert not np.abs(exact).max(initial=0) or lost[np.argmax(np.abs(exact))] == 0


@pytest.mark.parametrize("text", EXAMPLES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(text: str, bad: float) -> None:
    with pytest.raises(ValueError, match="not finite"):
        UPLOADS.parse(text).encode(np.array([1.0, bad], np.float32), generator(0, "upload"))


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_largest_numbers_of_float32_survive(text: str) -> None:
    most = np.finfo(np.float32).max
    x = np.array([most, -most, 0, most / 2], np.float32)
    assert np.isfinite(through(UPLOADS.parse(text), x)).all()


@pytest.mark.parametrize("text", EXAMPLES)
def test_a_large_vector_is_written_piece_by_piece_to_the_same_values(text: str) -> None:
    """Longer than what is widened at a time: the draws go on, and blocks do not shift."""
    upload, size = UPLOADS.parse(text), 300_001
    x = generator(1, "x").standard_normal(size).astype(np.float32)
    read = through(upload, x)
    if isinstance(upload, quantised):
        low, chance = upload.neighbours(
            x.astype(np.float64),
            np.repeat([np.abs(x[i : i + upload.block]).max() for i in range(0, size, upload.block)], upload.block)[
                :size
            ],
        )
        nearest = np.rint(low + chance)
        codes = nearest if upload.rounding == "nearest" else low + (generator(0, "upload").random(size) < chance)
        scale = np.abs(x).max()
        assert (
            np.abs(read * upload.levels - codes * np.abs(read / np.where(codes, codes, 1)) * upload.levels).max()
            <= scale
        )
        np.testing.assert_array_equal(np.sign(read), np.sign(codes))
    else:
        assert np.abs(read - x).max() <= np.abs(x).max()


FORGED = [
    ("quantised(bits=4)", {"codes": 0xFF}, "a code is 15; at most 14"),
    ("quantised", {"codes": 255}, "a code is 255; at most 254"),
    ("quantised", {"scales": np.nan}, "scale"),
    ("quantised", {"scales": np.inf}, "scale"),
    ("quantised", {"scales": -1.0}, "scale"),
    ("sparse(share=0.02)", {"places": 700}, "increasing numbers below 700"),
    ("sparse(share=0.02)", {"places": 3}, "increasing numbers below 700"),
    ("sparse(share=0.02)", {"values": np.nan}, "not finite"),
    ("sparse(share=0.5)", {"places": 0}, "places are marked"),
    ("sparse(share=0.5)", {"places": 255}, "places are marked"),
    ("feedback(sparse(share=0.5))", {"values": np.inf}, "not finite"),
    ("bfloat16", {"halves": 0x7F80}, "not finite"),
    ("bfloat16", {"halves": 0xFFC0}, "not finite"),
]


@pytest.mark.parametrize(("text", "forged", "reason"), FORGED)
def test_what_was_never_written_is_not_read(text: str, forged: dict[str, Any], reason: str) -> None:
    upload, size = UPLOADS.parse(text), 700
    packed = upload.encode(generator(0, "x").standard_normal(size).astype(np.float32), generator(0, "upload"))
    for name, value in forged.items():
        packed[name] = np.full_like(packed[name], value)
    with pytest.raises(ValueError, match=reason):
        upload.decode(packed, size)


@pytest.mark.parametrize("text", EXAMPLES)
@given(data=st.data(), size=st.integers(0, 70))
@QUICK
def test_any_bytes_of_the_right_form_give_finite_values_or_an_error(text: str, data: Any, size: int) -> None:
    upload = UPLOADS.parse(text)
    packed = {
        name: np.frombuffer(data.draw(st.binary(min_size=n * dtype.itemsize, max_size=n * dtype.itemsize)), dtype)
        for name, (dtype, n) in upload.forms(size).items()
    }
    try:
        read = upload.decode(packed, size)
    except ValueError:
        return
    assert read.shape == (size,)
    assert np.isfinite(read).all()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("quantised(bits=3)", "give 8, 4 or 2"),
        ("quantised(block=0)", "whole number"),
        ("quantised(rounding=up)", "random, nearest"),
        ("bfloat16(rounding=up)", "random, nearest"),
        ("sparse(share=0)", "above 0"),
        ("sparse(share=2)", "at most 1"),
        ("feedback(feedback(quantised))", "has a memory already"),
    ],
)
def test_bad_arguments_are_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        UPLOADS.parse(text)


@given(
    x=arrays.arrays(np.float32, st.integers(1, 30), elements=st.sampled_from([0.0, 1.0, -1.0, 2.0])),
    k=st.integers(0, 30),
)
@QUICK
def test_of_equal_values_the_first_are_taken(x: Any, k: int) -> None:
    expected = sorted(sorted(range(len(x)), key=lambda i: (-x[i], i))[: min(k, len(x))])
    assert largest(x, k).tolist() == expected if k else True


def test_every_size_and_share_costs_at_most_the_values_and_a_bit_for_each() -> None:
    for size, share in itertools.product((1, 31, 32, 33, 1000), (0.001, 0.03, 0.04, 1.0)):
        upload = sparse(share=share)
        assert upload.nbytes(size) <= 4 * upload.count(size) + min(4 * upload.count(size), (size + 7) // 8)
