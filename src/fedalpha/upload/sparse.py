"""Only the largest values of an update."""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedalpha.strategies.arguments import number
from fedalpha.upload.base import UPLOADS, Packed, Upload, Vector, check_finite

_LONGEST = 2**32


@UPLOADS.register(
    formula="x_j for the share of all j with the largest |x_j|, 0 for the others",
    reference="Aji & Heafield, 2017, 1704.05021; Stich et al., 2018, 1809.07599",
    examples=("sparse(share=0.01)", "sparse(share=0.5)"),
)
class sparse(Upload):
    """The ``share`` of the values that are largest in absolute value (top-k), at least one; ties go to the first.

    The values that are not sent are lost, which biases the update: use ``feedback(sparse(…))``. Places are sent
    as numbers of 32 bits, or as one bit for each value of the vector if that takes less (a share above 1/32).
    """

    share: float = field(default=0.01, metadata={"always": True})

    def __post_init__(self) -> None:
        number("sparse", "share", self.share, most=1)

    def count(self, size: int) -> int:
        """How many values are sent."""
        return min(size, max(1, math.ceil(self.share * size)))

    def _as_bits(self, size: int) -> bool:
        return self.count(size) * 32 > size

    def forms(self, size: int) -> dict[str, tuple[np.dtype[Any], int]]:
        k = self.count(size)
        places = (np.dtype(np.uint8), math.ceil(size / 8)) if self._as_bits(size) else (np.dtype(np.uint32), k)
        return {"places": places, "values": (np.dtype(np.float32), k)}

    def encode(self, values: Vector, rng: np.random.Generator) -> Packed:
        check_finite(self.text_name, values)
        if len(values) > _LONGEST:
            raise ValueError(f"sparse: {len(values):,} values; at most {_LONGEST:,} can be numbered, use quantised")
        chosen = largest(np.abs(values), self.count(len(values)))
        bits = self._as_bits(len(values))
        places = np.packbits(_marked(chosen, len(values))) if bits else chosen.astype(np.uint32)
        return {"places": places, "values": values[chosen]}

    def decode(self, packed: Packed, size: int) -> Vector:
        if not np.isfinite(packed["values"]).all():
            raise ValueError("a value is not finite")
        places = packed["places"]
        if self._as_bits(size):
            marks = np.unpackbits(places)
            if marks[size:].any() or np.count_nonzero(marks) != self.count(size):
                raise ValueError(f"{np.count_nonzero(marks)} places are marked, of {size}; {self.count(size)} are sent")
            places = np.flatnonzero(marks)
        elif len(places) and (int(places[-1]) >= size or (places[1:] <= places[:-1]).any()):
            raise ValueError(f"its places are not increasing numbers below {size}")
        found = np.zeros(size, np.float32)
        found[places] = packed["values"]
        return found


def largest(values: Vector, k: int) -> NDArray[np.int64]:
    """The places of the ``k`` largest values in increasing order; of equal ones the first.

    A partial sort would be enough, but its choice among equal values depends on the processor.

    >>> largest(np.array([1, 3, 2, 3, 2], np.float32), 3)
    array([1, 2, 3])
    """
    if k >= len(values):
        return np.arange(len(values))
    edge = np.partition(values, len(values) - k)[len(values) - k]
    found = values > edge
    found[np.flatnonzero(values == edge)[: k - np.count_nonzero(found)]] = True
    return np.flatnonzero(found)


def _marked(places: NDArray[np.int64], size: int) -> NDArray[np.bool_]:
    marks = np.zeros(size, np.bool_)
    marks[places] = True
    return marks
