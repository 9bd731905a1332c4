"""Updates in the upper half of each value's 32 bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedalpha.strategies.arguments import choice
from fedalpha.upload.base import UPLOADS, Packed, Upload, Vector, check_finite

_PIECE = 1 << 20
"""Values that are rounded at a time."""
_INFINITE = np.uint32(0x7F80)
"""The upper half of infinity, without its sign."""


@UPLOADS.register(
    formula="x_j → the float32 whose lower 16 bits are 0, above or below x_j",
    reference="Kalamkar et al., 2019, 1905.12322 (bfloat16)",
    examples=("bfloat16", "bfloat16(rounding=nearest)"),
)
class bfloat16(Upload):
    """Each value as a bfloat16: the range of float32, and 8 significant bits. Half of the bytes, and nothing to set.

    ``rounding``: random takes one of the two neighbours, with chances that make the mean right; nearest takes the
    closer one, of two equally close ones the even one. The error of a value is below 2⁻⁷·|x| (random) or at most
    2⁻⁸·|x| (nearest). Values beyond the largest bfloat16, 3.39·10³⁸, become that one.
    """

    rounding: str = "random"

    def __post_init__(self) -> None:
        choice("bfloat16", "rounding", self.rounding, ("random", "nearest"))

    @property
    def unbiased(self) -> bool:
        return self.rounding == "random"

    def forms(self, size: int) -> dict[str, tuple[np.dtype[Any], int]]:
        return {"halves": (np.dtype(np.uint16), size)}

    def encode(self, values: Vector, rng: np.random.Generator) -> Packed:
        check_finite(self.text_name, values)
        halves = np.empty(len(values), np.uint16)
        for start in range(0, len(values), _PIECE):
            bits = np.ascontiguousarray(values[start : start + _PIECE], np.float32).view(np.uint32)
            below = bits >> 16
            if self.rounding == "random":  # the lower half, as a share of 2¹⁶, is the chance of the next bfloat16
                found = (bits + rng.integers(0, 2**16, len(bits), dtype=np.uint16)) >> 16
            else:
                found = (bits + np.uint32(0x7FFF) + (below & np.uint32(1))) >> 16
            halves[start : start + _PIECE] = np.where(found & _INFINITE == _INFINITE, below, found)
        return {"halves": halves}

    def decode(self, packed: Packed, size: int) -> Vector:
        found = (packed["halves"].astype(np.uint32) << 16).view(np.float32)
        if not np.isfinite(found).all():
            raise ValueError("a value is not finite")
        return found
