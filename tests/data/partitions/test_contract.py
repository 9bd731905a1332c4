"""Every registered partition: exact, deterministic, nobody empty; errors name cause and remedy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedalpha.data.partitions import PARTITIONS, Partition
from fedalpha.data.partitions.iid import iid
from fedalpha.data.partitions.one_label import one_label
from fedalpha.data.partitions.shards import shards
from fedalpha.rng import generator

patiently = settings(deadline=None)  # a busy machine is not a failure
EXAMPLES = [text for entry in PARTITIONS for text in entry.examples]


def possible(partition: Partition, labels: np.ndarray, clients: int) -> bool:
    """Whether the partition's documented conditions hold."""
    n = len(labels)
    match partition:
        case iid(sizes=tuple()):
            return False  # needs one size a client: its own tests below
        case shards(size=int(size)):
            return -(-n // size) >= clients
        case shards(per_client=int(each)):
            return n >= clients * each
        case one_label():
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
        if not (isinstance(partition, iid) and partition.sizes and len(partition.sizes) == clients):
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("iid(sizes=[])", "one number per client"),
        ("iid(sizes=[1, -1])", "above 0"),
        ("iid(sizes=[1, inf])", "finite"),
        ("iid(sizes=3)", "one number per client"),
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
