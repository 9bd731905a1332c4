"""Updates with 8, 4 or 2 bits per value."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedalpha.strategies.arguments import choice
from fedalpha.text import whole
from fedalpha.upload.base import UPLOADS, Packed, Upload, Vector, check_finite

_PIECE = 1 << 17
"""Values that are converted to float64 at a time, rounded to whole blocks."""


@UPLOADS.register(
    formula="x_j → s·q_j/L with q_j ∈ {−L, …, L}, L = 2^(bits − 1) − 1, s = max |x| of each block",
    reference="Alistarh et al., 2017, 1610.02132 (QSGD, with the largest value as the scale)",
    examples=("quantised", "quantised(bits=4)", "quantised(bits=4, rounding=nearest)", "quantised(bits=2, block=64)"),
)
class quantised(Upload):
    """Each value in ``bits`` bits (8, 4 or 2), and the largest absolute value of every ``block`` values in float32.

    ``rounding``: random takes one of the two neighbouring codes, with probabilities for which the mean is the value, so
    that the errors of many clients cancel. nearest takes the closer code. Its largest error is half as large, but the
    rounding is biased: use it inside ``feedback``. The error of a value is below s/L (random) or at most s/(2·L)
    (nearest).
    """

    bits: int = 8
    block: int = 512
    rounding: str = "random"

    def __post_init__(self) -> None:
        if self.bits not in (8, 4, 2) or isinstance(self.bits, bool):
            raise ValueError(f"quantised: bits = {self.bits!r}; give 8, 4 or 2")
        whole("quantised: block", self.block, least=1)
        choice("quantised", "rounding", self.rounding, ("random", "nearest"))

    @property
    def unbiased(self) -> bool:
        return self.rounding == "random"

    @property
    def levels(self) -> int:
        """L, the largest code."""
        return int(2 ** (self.bits - 1) - 1)

    def forms(self, size: int) -> dict[str, tuple[np.dtype[Any], int]]:
        blocks = math.ceil(size / self.block)
        return {
            "codes": (np.dtype(np.uint8), math.ceil(size * self.bits / 8)),
            "scales": (np.dtype(np.float32), blocks),
        }

    def encode(self, values: Vector, rng: np.random.Generator) -> Packed:
        check_finite(self.text_name, values)
        codes, scales = np.empty(len(values), np.uint8), np.empty(math.ceil(len(values) / self.block), np.float32)
        for part, own in self._pieces(len(values)):
            x = values[part].astype(np.float64)
            scales[own] = np.maximum.reduceat(np.abs(x), np.arange(0, len(x), self.block))
            low, chance = self.neighbours(x, self._spread(scales[own], len(x)))
            # At an exact half rint takes the even one of the two.
            up = np.rint(low + chance) > low if self.rounding == "nearest" else rng.random(len(x)) < chance
            codes[part] = low + up + self.levels
        return {"codes": _packed(codes, self.bits), "scales": scales}

    def neighbours(self, x: NDArray[np.float64], scale: NDArray[np.float64]) -> tuple[NDArray[np.float64], Any]:
        """The code below each value, and the value's distance from it, which is the probability of the next code."""
        exact = np.divide(x, scale, out=np.zeros_like(x), where=scale > 0) * self.levels
        low = np.floor(exact)
        return low, exact - low

    def decode(self, packed: Packed, size: int) -> Vector:
        scales = packed["scales"]
        if not (np.isfinite(scales).all() and not np.signbit(scales).any()):
            raise ValueError("a scale is negative or not finite")
        codes = _unpacked(packed["codes"], self.bits, size)
        if size and int(codes.max()) > 2 * self.levels:
            raise ValueError(f"a code is {int(codes.max())}; at most {2 * self.levels} is sent")
        found = np.empty(size, np.float32)
        for part, own in self._pieces(size):
            shares = (codes[part].astype(np.float64) - self.levels) / self.levels
            found[part] = shares * self._spread(scales[own], len(shares))
        return found

    def _pieces(self, size: int) -> list[tuple[slice, slice]]:
        """Some values and their blocks, over all values."""
        step = max(1, _PIECE // self.block)
        blocks = math.ceil(size / self.block)
        return [
            (slice(i * self.block, min((i + step) * self.block, size)), slice(i, min(i + step, blocks)))
            for i in range(0, blocks, step)
        ]

    def _spread(self, scales: NDArray[np.float32], size: int) -> NDArray[np.float64]:
        """The scale of each value."""
        return np.repeat(scales.astype(np.float64), min(self.block, size))[:size]


def _packed(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Codes of a few bits side by side in bytes, the first one in the lowest bits; the rest of the last byte is 0."""
    each = 8 // bits
    padded = np.concatenate([codes, np.zeros(-len(codes) % each, np.uint8)]).reshape(-1, each)
    found = np.zeros(len(padded), np.uint8)
    for place in range(each):
        found |= padded[:, place] << np.uint8(place * bits)
    return found


def _unpacked(data: NDArray[np.uint8], bits: int, size: int) -> NDArray[np.uint8]:
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = (data[:, None] >> shifts) & np.uint8(2**bits - 1)
    return np.ascontiguousarray(codes.reshape(-1)[:size])
