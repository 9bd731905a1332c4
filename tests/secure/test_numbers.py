"""Fixed point, secret sharing, the graph and the encoding."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import hypergeom

from fedalpha.secure.field import FixedPoint, Overflow
from fedalpha.secure.masks import degree, joined, needed, ring
from fedalpha.secure.shamir import PRIME, NotRecovered, Recovery, evaluate, split, weights
from fedalpha.secure.vectors import clipped
from fedalpha.secure.wire import Malformed, pack, unpack

QUICK = settings(max_examples=40, deadline=None)


# Fixed point


@QUICK
@given(st.sampled_from([16, 32, 64]), st.integers(1, 30), st.floats(1e-6, 1e6), st.integers(0, 2**32 - 1))
def test_a_sum_is_right_within_the_stated_error(bits: int, clients: int, total: float, seed: int) -> None:
    grid, rng = FixedPoint(bits, clients, total), np.random.default_rng(seed)
    limits = rng.random(clients)
    limits *= total / limits.sum()
    parts = [rng.uniform(-1, 1, 20) * limit for limit in limits]
    words = sum((grid.encode(p, limit) for p, limit in zip(parts, limits, strict=True)), np.zeros(20, grid.dtype))
    exact = [math.fsum(column) for column in zip(*parts, strict=True)]
    assert np.max(np.abs(grid.decode(words, clients) - exact)) <= grid.error(clients)
    assert grid.error(clients) <= total * clients * 2.0 ** (4 - bits) + total * 2**-50


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_the_largest_admissible_sum_is_not_wrapped_and_the_next_one_is_told(bits: int) -> None:
    grid = FixedPoint(bits, 4, 1.0)
    edge = np.array([0.25, -0.25])
    total = np.zeros(2, grid.dtype)
    for _ in range(4):
        total += grid.encode(edge, 0.25)
    np.testing.assert_allclose(grid.decode(total, 4), [1.0, -1.0], atol=grid.error())
    for value in (np.nextafter(0.25, 1), -0.26, math.inf, math.nan):
        with pytest.raises(Overflow, match=r"beyond 0.25, its share of the range"):
            grid.encode(np.array([0.0, value]), 0.25)
    for beyond in (round(math.ldexp(1, grid.exponent)) + 3, 2 ** (bits - 1) - 1, 2 ** (bits - 1)):
        with pytest.raises(Overflow, match="at most 1"):
            grid.decode(np.array([0, beyond], grid.dtype), 4)


def test_survivors_have_a_tighter_range() -> None:
    grid = FixedPoint(32, 4, 1.0)
    with pytest.raises(Overflow, match="2 clients within their ranges"):
        grid.decode(grid.encode(np.array([0.75]), 1.0), 2, total=0.5)


def test_an_update_whose_norm_overflows_is_told_and_not_taken_for_zero() -> None:
    with pytest.raises(Overflow, match="too large for its norm"):
        clipped(np.array([1e200, 1.0]), 1.0)
    short = np.array([0.3, 0.4])
    assert clipped(short, 0.5) is short
    assert np.linalg.norm(clipped(short, 0.25)) <= 0.25


def test_too_few_bits_are_told() -> None:
    with pytest.raises(ValueError, match="use more bits"):
        FixedPoint(16, 20_000, 1.0)
    with pytest.raises(ValueError, match="bits = 24; give one of 16, 32, 64"):
        FixedPoint(24, 2, 1.0)


# Secret sharing


def test_the_example_of_wikipedia() -> None:
    """Shamir's secret sharing, the example in a field: the secret 1234 with 166·x + 94·x² modulo 1613."""
    points = {x: evaluate([1234, 166, 94], x, prime=1613) for x in range(1, 7)}
    assert points == {1: 1494, 2: 329, 3: 965, 4: 176, 5: 1188, 6: 775}
    for chosen in ([1, 2, 3], [2, 4, 5], [6, 3, 1]):
        found = zip(weights(chosen, prime=1613), chosen, strict=True)
        assert sum(weight * points[x] for weight, x in found) % 1613 == 1234


def test_the_field_is_prime() -> None:
    """Rabin's test with 40 bases, and that 2^256 + 297 holds every secret of 32 bytes."""
    odd = (PRIME - 1) // (power := (PRIME - 1) & (1 - PRIME))
    for base in range(2, 42):
        value = pow(base, odd, PRIME)
        steps = power.bit_length() - 1
        assert value == 1 or PRIME - 1 in [pow(base, odd << step, PRIME) for step in range(steps)]
    assert PRIME > 2**256


@QUICK
@given(st.binary(min_size=32, max_size=32), st.integers(1, 12), st.data())
def test_any_shares_at_the_threshold_give_the_secret(secret: bytes, holders: int, data: Any) -> None:
    threshold = data.draw(st.integers(1, holders))
    shares = split(secret, range(1, holders + 1), threshold)
    chosen = data.draw(st.permutations(range(1, holders + 1)))[:threshold]
    assert Recovery().secret({x: shares[x] for x in chosen}) == secret
    fewer = {x: shares[x] for x in chosen[1:]}
    with pytest.raises(NotRecovered, match=f"{threshold - 1} shares arrived, {threshold} are needed"):
        Recovery().verified(fewer, threshold, secret.__eq__)


def test_fewer_shares_than_the_threshold_fit_every_secret() -> None:
    """One share below the threshold: whatever the secret is, some value of the missing share makes it that."""
    shares = split(b"s" * 32, [1, 2, 3], 3)
    known = {x: int.from_bytes(shares[x]) for x in (1, 2)}
    first, second, third = weights([1, 2, 3])
    for guess in (0, 1, 2**200):
        missing = (guess - first * known[1] - second * known[2]) * pow(third, -1, PRIME) % PRIME
        assert (first * known[1] + second * known[2] + third * missing) % PRIME == guess


def test_wrong_shares_are_found_and_named() -> None:
    secret = b"s" * 32
    shares = split(secret, range(1, 11), 7)
    shares[2], shares[9] = shares[3], bytes(33)
    found, wrong = Recovery().verified(shares, 7, secret.__eq__)
    assert (found, wrong) == (secret, (2, 9))
    with pytest.raises(NotRecovered, match="some of them are wrong"):
        Recovery().verified({x: shares[x] for x in (1, 2, 3, 4, 5, 6, 7)}, 7, secret.__eq__)


# The graph


def test_a_ring_is_symmetric_connected_and_drawn_from_its_salt() -> None:
    ids = list(range(50, 90))
    near = ring(ids, 6, b"a" * 32)
    assert all(len(found) == 6 and one not in found for one, found in near.items())
    assert all(one in near[other] for one in ids for other in near[one])
    reached, frontier = {ids[0]}, {ids[0]}
    while frontier:
        frontier = {other for one in frontier for other in near[one]} - reached
        reached |= frontier
    assert reached == set(ids)
    assert near == ring(ids, 6, b"a" * 32) != ring(ids, 6, b"b" * 32)
    assert ring(ids, 60, b"")[50] == tuple(range(51, 90))


def test_neighbours_are_not_kept_for_every_pair() -> None:
    """20,000 clients of a complete graph have 400 million neighbours; a hostile server can send such a roster."""
    tracemalloc.start()
    near = ring(range(20_000), 0, b"")
    assert len(near[7]) == 19_999
    assert len(near) == 20_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**24
    with pytest.raises(KeyError):
        near[20_000]


def test_the_degree_grows_with_the_logarithm() -> None:
    found = [degree(10**power, 0.5, 0.1, 0.1) for power in (2, 3, 4, 5)]
    assert found == sorted(found)
    assert found[-1] - found[-2] <= 10
    assert found[-1] < 100


@pytest.mark.parametrize(("clients", "threshold"), [(200, 0.5), (200, 2 / 3), (2000, 0.5)])
def test_the_degree_keeps_its_bounds_and_the_next_smaller_one_does_not(clients: int, threshold: float) -> None:
    """The three events of Bell et al. (2020), with the hypergeometric distribution of scipy."""

    def chances(k: int) -> tuple[float, float]:
        least, tenth = needed(threshold, k + 1), math.ceil(clients / 10)
        known = clients * hypergeom(clients - 1, tenth, k).sf(least - 1)  # colluding neighbours hold enough shares
        cut = clients * (2 * tenth / clients) ** (k // 2)  # half a neighbourhood in a row colludes or is lost
        lost = clients * hypergeom(clients - 1, tenth, k).sf(k - least)  # too few neighbours are left
        return known + cut, lost  # either of the two breaks the secrecy

    k = degree(clients, threshold, 0.1, 0.1)
    assert 0 < k < clients - 1
    insecure, failing = chances(k)
    assert insecure <= 2.0**-40
    assert failing <= 2.0**-30
    insecure, failing = chances(k - 2)
    assert insecure > 2.0**-40 or failing > 2.0**-30


def test_cuts_of_a_ring_are_as_likely_as_stated() -> None:
    """With few neighbours cuts are common: drawn ones are at most as frequent as the bound, and not far below it."""
    clients, k, lost, draws = 60, 6, 24, 400
    rng, cut = np.random.default_rng(0), 0
    for _ in range(draws):
        near = ring(range(clients), k, rng.bytes(32))
        cut += not joined(near, set(range(clients - lost)))
    assert 0 < cut / draws <= clients * (lost / clients) ** (k // 2)


def test_thresholds() -> None:
    assert [needed(2 / 3, n) for n in (3, 4, 10, 20)] == [3, 3, 7, 14]
    assert needed(0.5, 1) == 1


# The encoding

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.binary() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.integers(0, 2**62), inner, max_size=4),
    max_leaves=12,
)


@QUICK
@given(VALUES)
def test_values_survive_and_have_one_encoding(value: object) -> None:
    assert unpack(pack(value)) == value
    assert pack(unpack(pack(value))) == pack(value)


@settings(max_examples=150, deadline=None)
@given(VALUES, st.data())
def test_changed_bytes_are_read_as_their_own_value_or_refused(value: object, data: Any) -> None:
    """Nothing but `Malformed` comes out, and what is read has exactly these bytes: no message has two encodings."""
    packed = bytearray(pack(value))
    place = data.draw(st.integers(0, len(packed) - 1))
    packed[place] ^= data.draw(st.integers(1, 255))
    changed = bytes(packed)[: data.draw(st.integers(0, len(packed)))] if data.draw(st.booleans()) else bytes(packed)
    try:
        found = unpack(changed)
    except Malformed:
        return
    assert pack(found) == changed


def test_a_deep_or_announced_message_costs_nothing() -> None:
    with pytest.raises(Malformed, match="nested"):
        unpack(b"l\x01\x00\x00\x00" * 10_000)
    with pytest.raises(Malformed, match="more were announced"):
        unpack(b"l\xff\xff\xff\xff" + b"b\xff\xff\xff\xff")
