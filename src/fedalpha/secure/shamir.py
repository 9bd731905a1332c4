"""Shamir's secret sharing over a prime field: any t of n shares give the secret, t − 1 shares reveal nothing about it.

`cryptography` has no secret sharing. PyCryptodome has it for secrets of 16 bytes; it recomputes the coefficients for
every secret, which takes 0.16 s for 67 shares, and a server reconstructs one or two secrets per client. In this module
the coefficients of a set of holders are computed once. A share is a whole number below `PRIME`; the secret is the value
at 0 of a random polynomial of degree t − 1.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from fedalpha.rng import generator

PRIME = 2**256 + 297
"""The smallest prime above 2^256, so that every secret of 32 bytes is an element of the field."""
SECRET = 32
SHARE = 33
"""Bytes of a secret, and of a share."""


class NotRecovered(ValueError):  # noqa: N818
    """The shares do not give the secret."""


def evaluate(coefficients: Sequence[int], x: int, prime: int = PRIME) -> int:
    """The polynomial with these coefficients (the lowest first) at ``x``.

    >>> [evaluate([1234, 166, 94], x, prime=1613) for x in (1, 2, 3)]
    [1494, 329, 965]
    """
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * x + coefficient) % prime
    return value


def split(secret: bytes, holders: Sequence[int], threshold: int) -> dict[int, bytes]:
    """A share of the secret for each holder, a number from 1; ``threshold`` of them give it back."""
    if len(secret) != SECRET:
        raise ValueError(f"a secret of {len(secret)} bytes; it must have {SECRET}")
    if not 1 <= threshold <= len(holders):
        raise ValueError(f"a threshold of {threshold} for {len(holders)} holders")
    if len(set(holders)) != len(holders) or not all(1 <= x < 2**64 for x in holders):
        raise ValueError("holders are different whole numbers ≥ 1")
    coefficients = [int.from_bytes(secret), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    return {x: evaluate(coefficients, x).to_bytes(SHARE) for x in holders}


def weights(holders: Sequence[int], prime: int = PRIME) -> list[int]:
    """Lagrange's coefficients at 0: the secret is Σ weight·share."""
    found = []
    for x in holders:
        above, below = 1, 1
        for other in holders:
            if other != x:
                above = above * other % prime
                below = below * (other - x) % prime
        found.append(above * pow(below, -1, prime) % prime)
    return found


class Recovery:
    """Recovers many secrets from shares of the same holders; the coefficients are computed once per set of holders."""

    MOST_TRIES = 200
    """The number of sets of shares that are tried when some shares are wrong."""

    def __init__(self) -> None:
        self._weights: dict[tuple[int, ...], list[int]] = {}

    def secret(self, shares: Mapping[int, bytes]) -> bytes | None:
        """The secret that exactly these shares give; None if they give no secret of 32 bytes."""
        holders = tuple(sorted(shares))
        if holders not in self._weights:
            self._weights[holders] = weights(holders)
        pairs = zip(self._weights[holders], (int.from_bytes(shares[x]) for x in holders), strict=True)
        value = sum(weight * share for weight, share in pairs) % PRIME
        return value.to_bytes(SECRET) if value < 1 << (8 * SECRET) else None

    def verified(
        self, shares: Mapping[int, bytes], threshold: int, right: Callable[[bytes], bool]
    ) -> tuple[bytes, tuple[int, ...]]:
        """The secret for which ``right(secret)`` holds, and the holders whose shares are wrong.

        If the first ``threshold`` shares do not give it, other sets of shares are tried (`_sets`). Wrong shares are
        looked for only then.
        """
        if len(shares) < threshold:
            raise NotRecovered(f"{len(shares)} shares arrived, {threshold} are needed")
        for place, holders in enumerate(islice(_sets(sorted(shares), threshold), self.MOST_TRIES)):
            secret = self.secret({x: shares[x] for x in holders})
            if secret is not None and right(secret):
                return secret, self._wrong(shares, holders) if place else ()
        raise NotRecovered("the shares that arrived do not give the secret: some of them are wrong")

    def _wrong(self, shares: Mapping[int, bytes], good: tuple[int, ...]) -> tuple[int, ...]:
        """The holders whose share is not on the polynomial through the good ones."""
        return tuple(x for x in sorted(shares) if x not in good and not _on_curve(shares, good, x))


def _sets(holders: Sequence[int], threshold: int) -> Iterator[tuple[int, ...]]:
    """Sets of ``threshold`` holders: first neighbours in a circle, one of which leaves any single holder out; then any.

    With w wrong shares among n, a drawn set has no wrong share with a probability of about (1 − threshold/n)^w.
    """
    n = len(holders)
    for start in range(n if threshold < n else 1):
        yield tuple(sorted(holders[(start + step) % n] for step in range(threshold)))
    rng = generator(0, "sets of shares")
    while threshold < n:
        yield tuple(sorted(holders[at] for at in rng.permutation(n)[:threshold]))


def _on_curve(shares: Mapping[int, bytes], good: Sequence[int], x: int) -> bool:
    shifted = [(holder - x) % PRIME for holder in good]
    value = sum(w * int.from_bytes(shares[h]) for w, h in zip(weights(shifted), good, strict=True)) % PRIME
    return value == int.from_bytes(shares[x])
