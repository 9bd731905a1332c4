"""Client updates that differ in nothing but the order of their batches: one rule under many names."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedalpha.update import UPDATES
from fedalpha.update.sgd import sgd


@UPDATES.register(formula="as sgd, with the batches of permutation skip + 1")
class reordered(sgd):  # noqa: N801 - the name in texts
    """`sgd` that passes over ``skip`` permutations of the client's stream and trains on the next one.

    The permutations of a stream are independent and have one law, so updates that differ in ``skip`` are exchangeable.
    """

    skip: int = 0

    def order(self, samples: int, rng: np.random.Generator) -> NDArray[np.int64]:
        for _ in range(self.skip):
            super().order(samples, rng)
        return super().order(samples, rng)
