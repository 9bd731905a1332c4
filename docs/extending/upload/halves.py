"""Updates in float16."""

from typing import Any

import numpy as np

from fedalpha.upload import UPLOADS, Packed, Upload, Vector


@UPLOADS.register(formula="x_j/s in float16, s = max |x|", reference="docs/extending.md")
class halves(Upload):
    """Each value in two bytes, as a share of the largest one, so that float16 can hold it."""

    def forms(self, size: int) -> dict[str, tuple[np.dtype[Any], int]]:
        return {"shares": (np.dtype(np.float16), size), "scale": (np.dtype(np.float32), 1)}

    def encode(self, values: Vector, rng: np.random.Generator) -> Packed:
        scale = np.abs(values).max(initial=0.0)
        return {"shares": (values / (scale or 1)).astype(np.float16), "scale": np.array([scale], np.float32)}

    def decode(self, packed: Packed, size: int) -> Vector:
        if not np.isfinite(packed["scale"][0]) or not (np.abs(packed["shares"]) <= 1).all():
            raise ValueError("a share is above 1 or NaN, or the scale is not finite")
        values: Vector = packed["shares"].astype(np.float32) * packed["scale"][0]
        return values
