"""Masks, and the graph of the clients that mask each other.

A client adds a personal mask and one mask for each neighbour. Of two neighbours one adds their common mask and the
other subtracts it, so that these masks cancel in the sum. With few clients all are neighbours (Bonawitz et al., 2017).
With many, each has k neighbours on a ring in random order (Bell et al., 2020). Work and bytes grow with k, and the k
of `degree` grows with the logarithm of the number of clients.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from fedalpha.secure.field import Words
from fedalpha.secure.keys import stream

_CHUNK = 1 << 20
_ZEROS = bytes(_CHUNK)


def add_mask(words: Words, key: bytes, sign: int) -> None:
    """Add the mask of a key to a vector modulo 2^k, in place, or subtract it (``sign`` = −1)."""
    generator = stream(key)
    step = _CHUNK // words.itemsize
    for start in range(0, len(words), step):
        part = words[start : start + step]
        mask = np.frombuffer(generator.update(_ZEROS[: part.nbytes]), dtype=words.dtype)
        (np.add if sign > 0 else np.subtract)(part, mask, out=part)


class _Others(Mapping[int, tuple[int, ...]]):
    """All other clients, as the neighbours of a client. For all clients these are n² numbers, which are not stored."""

    def __init__(self, ids: Sequence[int]) -> None:
        self._ids = dict.fromkeys(ids)

    def __getitem__(self, one: int) -> tuple[int, ...]:
        if one not in self._ids:
            raise KeyError(one)
        return tuple(other for other in self._ids if other != one)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)


def ring(ids: Sequence[int], degree: int, salt: bytes) -> Mapping[int, tuple[int, ...]]:
    """The neighbours of each client: all others, or the ``degree`` nearest ones on a ring whose order ``salt`` draws.

    Every client computes the graph itself from the hash of the roster, in which each has a fresh key.

    >>> ring([4, 5, 6], 0, b"")[5]
    (4, 6)
    >>> all(len(near) == 4 for near in ring(range(10), 4, b"salt").values())
    True
    """
    n = len(ids)
    if not 0 < degree < n - 1:
        return _Others(ids)
    words = np.frombuffer(salt.ljust(32, b"\0")[:32], dtype="<u4")
    order = np.random.Generator(np.random.Philox(np.random.SeedSequence(words.tolist()))).permutation(n).tolist()
    half = degree // 2
    steps = [step for step in range(-half, half + 1) if step]
    found = {}
    for place, index in enumerate(order):
        found[ids[index]] = tuple(sorted(ids[order[(place + step) % n]] for step in steps))
    return found


def joined(neighbours: Mapping[int, Sequence[int]], alive: Collection[int]) -> bool:
    """Whether every client of ``alive`` is reached from every other one over neighbours that are also alive.

    >>> near = ring(range(6), 2, b"")
    >>> first, *others = near[0]
    >>> joined(near, range(6)), joined(near, {1, 2, 3, 4, 5}), joined(near, set(range(6)) - {first, *others})
    (True, True, False)
    """
    rest = set(alive)
    frontier = [rest.pop()] if rest else []
    while frontier:
        found = rest.intersection(neighbours[frontier.pop()])
        rest -= found
        frontier += found
    return not rest


def needed(threshold: float, members: int) -> int:
    """How many of ``members`` must deliver: more than the share ``threshold`` of them.

    >>> needed(2 / 3, 10), needed(0.5, 10)
    (7, 6)
    """
    return min(math.floor(threshold * members + 1e-9) + 1, members)


def degree(clients: int, threshold: float, colluding: float, dropping: float, sigma: int = 40, eta: int = 30) -> int:
    """The smallest even number of neighbours for a random ring of many clients; 0: all are neighbours.

    Let at most the share ``colluding`` of the clients collude with the server, and the share ``dropping`` drop out.
    Except with probability 2^−sigma, no neighbourhood has enough colluding clients to recover a secret, and the ring
    of the other survivors is connected. Except with probability 2^−eta, every secret can be recovered (Bell et al.,
    2020, section 3).

    >>> degree(1000, 0.5, 0.1, 0.1), degree(100_000, 0.5, 0.1, 0.1), degree(20, 0.5, 0.1, 0.1)
    (54, 70, 0)
    """
    bad, gone = math.ceil(colluding * clients), math.ceil(dropping * clients)
    for k in range(4, clients - 1, 2):
        t = needed(threshold, k + 1)
        # ln of the chance: hypergeometric tails over k neighbours, and k/2 consecutive clients missing on the ring.
        many = _tail(clients - 1, bad, k, t)
        few = _tail(clients - 1, gone, k, k - t + 1)
        cut = (k // 2) * math.log(min(1.0, (bad + gone) / clients))
        n = math.log(clients)
        if np.logaddexp(many, cut) + n <= -sigma * math.log(2) and few + n <= -eta * math.log(2):
            return k
    return 0


def _tail(population: int, marked: int, drawn: int, least: int) -> float:
    """ln P(X ≥ least) for the number X of marked ones among ``drawn`` of the population."""

    def choose(n: int, k: int) -> float:
        return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)

    terms = [
        choose(marked, x) + choose(population - marked, drawn - x) - choose(population, drawn)
        for x in range(max(least, drawn - population + marked), min(drawn, marked) + 1)
    ]
    if not terms:
        return -math.inf
    top = max(terms)
    return top + math.log(math.fsum(math.exp(term - top) for term in terms))
