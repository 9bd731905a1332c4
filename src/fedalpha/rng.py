"""Every random draw comes from a generator derived from (seed, purpose, round, client).

No global state is read or changed, so the strategies of one seed see the same initial model,
partition, cohorts and batches, whatever runs before, after or beside them.

>>> generator(0, "cohort", 3).integers(100) == generator(0, "cohort", 3).integers(100)
np.True_
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


def generator(seed: int, purpose: str, round: int = 0, client: int = 0) -> np.random.Generator:
    """The generator for one purpose in one round on one client."""
    return np.random.Generator(np.random.Philox(_sequence(seed, purpose, round, client)))


def integer(seed: int, purpose: str, round: int = 0, client: int = 0) -> int:
    """A 64-bit seed for libraries that have a generator of their own (torch)."""
    low, high = _sequence(seed, purpose, round, client).generate_state(2)
    return int(high) << 32 | int(low)


def generators(seed: int, purpose: str, round: int, clients: Sequence[int]) -> Iterator[np.random.Generator]:
    """The `generator` of each client in turn; a client's is valid until the next one's is asked for.

    One object is set to stream after stream, and their keys are computed together: where a thousand clients take
    a few small steps each, building a thousand generators would be much of the work.

    >>> [int(g.integers(100)) for g in generators(0, "batches", 3, [5, 6])]
    [92, 55]
    >>> [int(generator(0, "batches", 3, client).integers(100)) for client in (5, 6)]
    [92, 55]
    """
    bits = np.random.Philox(0)
    start: Any = bits.state
    found = np.random.Generator(bits)
    for key in _keys(seed, purpose, round, clients):
        start["state"]["key"] = key
        bits.state = start
        yield found


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


def _keys(seed: int, purpose: str, round: int, clients: Sequence[int]) -> NDArray[np.uint64]:
    """``_sequence(…).generate_state(2, uint64)`` of each client: NumPy's SeedSequence, many at a time.

    NumPy promises never to change it: O'Neill's seed_seq_fe128 for a pool of four words, and ours are four.
    """
    if not clients or max(seed, round, *clients) >= 1 << 32 or min(seed, round, *clients) < 0:
        found = [_sequence(seed, purpose, round, client).generate_state(2, np.uint64) for client in clients]
        return np.array(found, dtype=np.uint64).reshape(-1, 2)
    words = [np.full(len(clients), w, np.uint32) for w in (seed, zlib.crc32(purpose.encode()), round)]
    words.append(np.array(clients, np.uint32))
    constants = _constants(0x43B0D7E5, 0x931E8875, 16)
    pool = [_hashed(word, *next(constants)) for word in words]
    for source in range(4):
        for target in range(4):
            if source != target:
                mixed = np.uint32(0xCA01F9DD) * pool[target]
                mixed -= np.uint32(0x4973F715) * _hashed(pool[source], *next(constants))
                pool[target] = mixed ^ (mixed >> np.uint32(16))
    state = [_hashed(word, *pair) for word, pair in zip(pool, _constants(0x8B51F9DD, 0x58F38DED, 4), strict=True)]
    low, high = (np.stack(state[half::2], axis=1).astype(np.uint64) for half in (0, 1))
    return low | high << np.uint64(32)


def _constants(first: int, factor: int, count: int) -> Iterator[tuple[np.uint32, np.uint32]]:
    for _ in range(count):
        following = first * factor & 0xFFFFFFFF
        yield np.uint32(first), np.uint32(following)
        first = following


def _hashed(word: NDArray[np.uint32], before: np.uint32, after: np.uint32) -> NDArray[np.uint32]:
    word = (word ^ before) * after
    return word ^ (word >> np.uint32(16))
