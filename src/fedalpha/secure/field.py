"""Fixed-point numbers modulo 2^k: the encoding of real vectors as whole numbers that are masked and summed.

A value v becomes round(v·scale) modulo 2^k. The scale is the largest power of two for which every admissible sum is in
the middle half of the range, so that an overflow is noticed:

- every client's part has a limit L_i, and it refuses to send a value beyond it: |v| ≤ L_i;
- |Σ v_i·scale| ≤ scale·Σ L_i + n/2 ≤ 2^(k−2), half of what the signed range holds;
- the server refuses a decoded sum beyond that bound. Masks that do not cancel give numbers that are uniform in the
  whole range, so d of them pass by chance with probability 2^−d at most.

Each rounding changes a value by at most 1/(2·scale), the sum of n by n/(2·scale); decoding to float64 adds a relative
error of 2^−53.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[Any]
"""Whole numbers modulo 2^k: a vector of unsigned integers of k bits, little-endian."""
BITS = (16, 32, 64)


class Overflow(ValueError):  # noqa: N818
    """A value or a sum beyond the stated range."""


@dataclass(frozen=True)
class FixedPoint:
    """Numbers of ``bits`` bits for a sum over at most ``clients`` parts whose limits add up to ``total``.

    >>> grid = FixedPoint(bits=32, clients=2, total=1.0)
    >>> parts = [grid.encode(np.array([0.25, -0.5]), limit=0.5) for _ in range(2)]
    >>> grid.decode(parts[0] + parts[1], clients=2)
    array([ 0.5, -1. ])
    """

    bits: int
    clients: int
    total: float

    def __post_init__(self) -> None:
        if self.bits not in BITS:
            raise ValueError(f"bits = {self.bits}; give one of {', '.join(map(str, BITS))}")
        if self.clients < 1 or not 0 < self.total < math.inf:
            raise ValueError(f"{self.clients} clients with limits that add up to {self.total}; both must be > 0")
        if self._most <= self.clients or not -1000 < self.exponent < 1000:
            raise ValueError(
                f"{self.bits} bits are too few for {self.clients} clients and a range of {self.total:g}; use more bits"
            )

    @property
    def _most(self) -> int:
        return 1 << (self.bits - 2)

    @cached_property
    def exponent(self) -> int:
        """log2 of the scale."""
        room = (self._most - self.clients / 2) / self.total
        return math.frexp(room)[1] - 1 if room > 0 else -10_000

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(f"<u{self.bits // 8}")

    def error(self, clients: int | None = None) -> float:
        """The largest difference of a decoded sum of ``clients`` parts from the sum of the values."""
        n = self.clients if clients is None else clients
        return math.ldexp(n / 2, -self.exponent) + math.ldexp(self.total, -52)

    def encode(self, values: NDArray[np.float64], limit: float) -> Words:
        """The words of a vector; raises `Overflow` if a value is not finite or beyond ``limit``."""
        largest = float(np.max(np.abs(values), initial=0.0))
        if not largest <= limit:  # also NaN
            raise Overflow(f"it has a value beyond {limit:.6g}, its share of the range: give a larger range, or clip")
        whole = np.rint(np.ldexp(values.astype(np.float64), self.exponent)).astype(np.int64)
        return whole.astype(self.dtype)

    def decode(self, words: Words, clients: int, total: float | None = None) -> NDArray[np.float64]:
        """The sum that ``words`` stand for, of ``clients`` parts whose limits add up to ``total``."""
        signed = words.view(np.dtype(f"<i{self.bits // 8}")).astype(np.int64)
        within = self.total if total is None else min(total, self.total)
        bound = min(math.floor(math.ldexp(within, self.exponent) * (1 + 1e-12) + clients / 2), self._most)
        largest = max(int(np.max(signed, initial=0)), -int(np.min(signed, initial=0)))
        if largest > bound:
            raise Overflow(
                f"the sum has a value of {math.ldexp(largest, -self.exponent):.6g}, but {clients} clients within their "
                f"ranges give at most {math.ldexp(bound, -self.exponent):.6g}: a client exceeded its range, or "
                "masks do not cancel"
            )
        return np.ldexp(signed.astype(np.float64), -self.exponent)
