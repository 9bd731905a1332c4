"""Error feedback: the error of an upload is added to later updates."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np

from fedalpha.upload.base import UPLOADS, Packed, Upload, Vector


@UPLOADS.register(
    formula="sent: C(x + e); then e ← x + e − C(x + e), kept by the client",
    reference="Seide et al., 2014; Karimireddy et al., 2019, 1901.09847",
    examples=(
        "feedback(sparse(share=0.01))",
        "feedback(quantised(bits=4, rounding=nearest))",
        "feedback(quantised(bits=4))",
    ),
)
class feedback(Upload):
    """Error feedback around another upload: a client adds the error of its earlier uploads to each update.

    The error e is part of the client's state and is as large as the model. It changes only in rounds in which the
    client's report is used. The sum of all decoded updates then stays close to the sum of the client's updates, but a
    single update is biased. e stays bounded if the inner upload shrinks every vector by a fixed share, as ``sparse``
    and ``quantised`` with rounding=nearest do.
    """

    of: Upload | str = field(metadata={"positional": True})

    remembers = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "of", UPLOADS.parse(self.of))
        if self.inner.remembers:
            raise ValueError(f"feedback: {self.inner} has a memory already; leave the outer feedback out")

    @property
    def inner(self) -> Upload:
        assert isinstance(self.of, Upload)
        return self.of

    def forms(self, size: int) -> dict[str, tuple[np.dtype[Any], int]]:
        return self.inner.forms(size)

    def encode(self, values: Vector, rng: np.random.Generator) -> Packed:
        return self.inner.encode(values, rng)

    def decode(self, packed: Packed, size: int) -> Vector:
        return self.inner.decode(packed, size)
