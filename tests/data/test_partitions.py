"""Every registered partition: exact, deterministic, nobody empty; and each one's own promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedalpha.data.partitions import PARTITIONS, Iid, OneLabel, Partition, Shards, _apportion, _stratified
from fedalpha.data.picture import label_counts
from fedalpha.rng import generator

patiently = settings(deadline=None)  # a busy machine is not a failure
EXAMPLES = [text for entry in PARTITIONS for text in entry.examples]


def possible(partition: Partition, labels: np.ndarray, clients: int) -> bool:
    """Whether the partition's documented conditions hold."""
    n = len(labels)
    match partition:
        case Iid(sizes=tuple()):
            return False  # needs one size a client: its own tests below
        case Shards(size=int(size)):
            return -(-n // size) >= clients
        case Shards(per_client=int(each)):
            return n >= clients * each
        case OneLabel():
            return clients >= len(np.unique(labels))
    return True


@pytest.mark.parametrize("text", EXAMPLES)
@patiently
@given(
    labels=st.lists(st.integers(0, 6), min_size=1, max_size=150).map(np.array),
    clients=st.integers(1, 40),
    seed=st.integers(0, 2**32),
)
def test_every_sample_once_nobody_empty_and_the_seed_decides(
    text: str, labels: np.ndarray, clients: int, seed: int
) -> None:
    partition = PARTITIONS.parse(text)
    if len(labels) < clients or not possible(partition, labels, clients):
        if not (isinstance(partition, Iid) and partition.sizes and len(partition.sizes) == clients):
            with pytest.raises(ValueError, match="clients"):
                partition.split(labels, clients, generator(seed, "partition"))
        return
    parts = partition.split(labels, clients, generator(seed, "partition"))
    assert len(parts) == clients
    assert all(len(part) for part in parts)
    assert all((np.diff(part) > 0).all() and part.dtype == np.int64 for part in parts)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    again = partition.split(labels, clients, generator(seed, "partition"))
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


@pytest.mark.parametrize("text", EXAMPLES)
def test_seeds_differ(text: str) -> None:
    labels = np.arange(300) % 3
    one, two = (PARTITIONS.parse(text).split(labels, 3, generator(seed, "partition")) for seed in (0, 1))
    assert any(not np.array_equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("text", [*EXAMPLES, "shards", "dirichlet", "quantity(a=2)", "iid(sizes=[0.5, 0.25])"])
def test_text_parses_back_to_an_equal_object(text: str) -> None:
    partition = PARTITIONS.parse(text)
    again = PARTITIONS.parse(str(partition))
    assert again == partition
    assert hash(again) == hash(partition)
    assert partition != PARTITIONS.parse("shards(size=7)")


@pytest.mark.parametrize("entry", list(PARTITIONS), ids=lambda entry: entry.name)
def test_every_partition_says_what_it_is(entry) -> None:
    assert entry.formula
    assert entry.reference
    assert entry.summary


# --- iid -------------------------------------------------------------------------------------


@patiently
@given(
    labels=st.lists(st.integers(0, 4), min_size=1, max_size=200).map(np.array),
    weights=st.lists(st.floats(0.01, 100), min_size=1, max_size=12),
    seed=st.integers(0, 1000),
)
def test_stratified_sizes_are_exact_and_label_counts_within_one_of_proportional(labels, weights, seed) -> None:
    codes = np.unique(labels, return_inverse=True)[1]
    sizes = _apportion(np.array(weights), len(codes))
    owners = _stratified(codes, sizes, np.random.default_rng(seed))
    assert np.array_equal(np.bincount(owners, minlength=len(sizes)), sizes)
    table = np.zeros((len(sizes), codes.max() + 1))
    np.add.at(table, (owners, codes), 1)
    assert (np.abs(table - np.outer(sizes, np.bincount(codes)) / len(codes)) <= 1 + 1e-9).all()


@patiently
@given(n=st.integers(1, 300), clients=st.integers(1, 40))
def test_equal_sizes_differ_by_at_most_one(n: int, clients: int) -> None:
    if clients <= n:
        sizes = [len(part) for part in Iid().split(np.arange(n) % 7, clients, np.random.default_rng(0))]
        assert max(sizes) - min(sizes) <= 1


@patiently
@given(weights=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30), total=st.integers(0, 10**5))
def test_apportion_rounds_each_share_up_or_down(weights: list[float], total: int) -> None:
    whole = _apportion(np.array(weights), total)
    exact = np.array(weights) / sum(weights) * total
    assert whole.sum() == total
    assert (np.abs(whole - exact) < 1 + 1e-6).all()


def test_sizes_with_the_right_sum_are_counts_and_others_are_shares() -> None:
    labels = np.array([0] * 6 + [1] * 4)
    for sizes in ([7, 2, 1], [0.7, 0.2, 0.1], [70, 20, 10]):
        parts = Iid(sizes=sizes).split(labels, 3, np.random.default_rng(0))
        assert [len(part) for part in parts] == [7, 2, 1]
    # 7 of 10 samples: 4.2 of label 0 and 2.8 of label 1.
    assert label_counts(labels, parts)[0].tolist() in ([4, 3], [5, 2])


def test_iid_by_hand() -> None:
    labels = np.array([0, 1, 0, 1, 0, 1, 0, 1])
    parts = Iid().split(labels, 4, np.random.default_rng(3))
    assert label_counts(labels, parts).tolist() == [[1, 1]] * 4


# --- shards ----------------------------------------------------------------------------------


def test_shards_are_contiguous_in_label_order() -> None:
    labels = np.array([2, 0, 1, 0, 2, 1, 0])  # by label: 1 3 6 | 2 5 | 0 4
    parts = Shards(size=3).split(labels, 3, np.random.default_rng(0))
    assert sorted(part.tolist() for part in parts) == [[0, 2, 5], [1, 3, 6], [4]]


def test_the_papers_shards_are_unbalanced_multiples_of_thirty() -> None:
    labels = np.repeat(np.arange(10), 6000)
    sizes = np.array([len(p) for p in Shards(size=30).split(labels, 100, generator(0, "partition"))])
    assert (sizes % 30 == 0).all()
    assert sizes.sum() == 60_000
    # 1 + Binomial(1900, 1/100) shards: mean 20, standard deviation 4.3.
    assert 100 < sizes.std() < 160


def test_shards_per_client_are_equally_many() -> None:
    labels = np.repeat(np.arange(10), 20)
    parts = Shards(per_client=2).split(labels, 10, np.random.default_rng(0))
    assert [len(part) for part in parts] == [20] * 10
    assert max((label_counts(labels, parts) > 0).sum(axis=1)) <= 2


# --- dirichlet, quantity, one_label ------------------------------------------------------------


def test_dirichlet_goes_from_one_holder_a_label_to_even() -> None:
    labels = np.repeat(np.arange(5), 100)
    skewed = label_counts(labels, PARTITIONS.parse("dirichlet(a=1e-6)").split(labels, 4, np.random.default_rng(0)))
    assert ((skewed >= 97).sum(axis=0) == 1).all()
    even = label_counts(labels, PARTITIONS.parse("dirichlet(a=1e9)").split(labels, 4, np.random.default_rng(0)))
    assert (even == 25).all()


def test_dirichlet_has_the_moments_of_the_law() -> None:
    labels = np.zeros(10_000, dtype=int)
    draws = [PARTITIONS.parse("dirichlet(a=0.5)").split(labels, 4, generator(s, "partition")) for s in range(400)]
    shares = np.array([[len(part) / 10_000 for part in parts] for parts in draws])
    # Dirichlet(½, ½, ½, ½): mean 1/4, variance (1/4)(3/4)/(4·½ + 1) = 1/16.
    assert np.allclose(shares.mean(axis=0), 0.25, atol=0.04)
    assert np.allclose(shares.var(axis=0), 1 / 16, atol=0.012)


def test_quantity_skews_sizes_and_not_labels() -> None:
    labels = np.repeat(np.arange(4), 250)
    counts = label_counts(labels, PARTITIONS.parse("quantity(a=0.5)").split(labels, 5, np.random.default_rng(0)))
    sizes = counts.sum(axis=1)
    assert sizes.max() > 2 * sizes.min()
    assert (np.abs(counts - sizes[:, None] / 4) <= 1).all()


@patiently
@given(counts=st.lists(st.integers(1, 30), min_size=1, max_size=6), extra=st.integers(0, 20), seed=st.integers(0, 99))
def test_one_label_each(counts: list[int], extra: int, seed: int) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    clients = min(len(counts) + extra, len(labels))
    parts = OneLabel().split(labels, clients, np.random.default_rng(seed))
    assert all(len(np.unique(labels[part])) == 1 for part in parts)


# --- errors name cause and remedy ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "n", "clients", "message"),
    [
        ("iid", 3, 4, "3 samples cannot be split over 4 clients.*fewer clients"),
        ("iid", 3, 0, "clients is 0"),
        ("iid(sizes=[1, 2])", 9, 3, "2 values for 3 clients"),
        ("iid(sizes=[1, 1000])", 9, 2, "client 0 gets none.*larger share"),
        ("shards(size=30)", 100, 10, r"100 samples make 4 shards.*shards\(size=11\) or smaller"),
        ("shards(per_client=5)", 20, 5, r"need 25 shards.*shards\(per_client=4\) or less"),
        ("one_label", 9, 2, "2 clients cannot hold 3 labels"),
    ],
)
def test_impossible_splits(text: str, n: int, clients: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PARTITIONS.parse(text).split(np.arange(n) % 3, clients, np.random.default_rng(0))


def test_the_size_that_the_error_recommends_is_the_largest_that_works() -> None:
    labels = np.arange(100) % 3
    assert len(Shards(size=11).split(labels, 10, np.random.default_rng(0))) == 10
    with pytest.raises(ValueError, match="shards"):
        Shards(size=12).split(labels, 10, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("iid(sizes=[])", "one number a client"),
        ("iid(sizes=[1, -1])", "above 0"),
        ("iid(sizes=[1, inf])", "finite"),
        ("iid(sizes=3)", "one number a client"),
        ("shards(size=0)", "≥ 1"),
        ("shards(size=2.5)", "whole number"),
        ("shards(size=30, per_client=2)", "exclude each other"),
        ("dirichlet(a=0)", "concentration"),
        ("quantity(a=inf)", "concentration"),
        ("dirichlet(b=1)", "no argument 'b'"),
        ("shard", "did you mean 'shards'"),
    ],
)
def test_wrong_arguments(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PARTITIONS.parse(text)


def test_labels_may_be_any_values_but_one_dimensional() -> None:
    parts = PARTITIONS.parse("iid").split(["cat", "dog", "cat", "dog"], 2, np.random.default_rng(0))
    assert [len(part) for part in parts] == [2, 2]
    with pytest.raises(ValueError, match="one-dimensional"):
        PARTITIONS.parse("iid").split(np.zeros((3, 2)), 2, np.random.default_rng(0))
