"""Every random draw comes from a generator derived from (seed, purpose, round, client).

Nothing global is read or touched, so the strategies of one seed see the same initial model,
partition, cohorts and batches, whatever runs before, after or beside them.

>>> generator(0, "cohort", 3).integers(100) == generator(0, "cohort", 3).integers(100)
np.True_
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np


def generator(seed: int, purpose: str, round: int = 0, client: int = 0) -> np.random.Generator:
    """The generator for one purpose in one round on one client."""
    return np.random.Generator(np.random.Philox(_sequence(seed, purpose, round, client)))


def integer(seed: int, purpose: str, round: int = 0, client: int = 0) -> int:
    """A 64-bit seed for libraries that have a generator of their own (torch)."""
    low, high = _sequence(seed, purpose, round, client).generate_state(2)
    return int(high) << 32 | int(low)


@dataclass(frozen=True)
class Draws:
    """The generators of one client in one round: ``draws("batches")``."""

    seed: int
    round: int
    client: int

    def __call__(self, purpose: str) -> np.random.Generator:
        return generator(self.seed, purpose, self.round, self.client)

    def integer(self, purpose: str) -> int:
        return integer(self.seed, purpose, self.round, self.client)


def _sequence(seed: int, purpose: str, round: int, client: int) -> np.random.SeedSequence:
    if seed < 0:
        raise ValueError(f"seed is {seed}: give a whole number ≥ 0")
    return np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), round, client])
