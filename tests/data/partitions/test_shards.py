"""Label-sorted shards."""

from __future__ import annotations

import numpy as np
import pytest

from fedalpha.data.partitions.shards import shards
from fedalpha.data.picture import label_counts
from fedalpha.rng import generator


def test_shards_are_contiguous_in_label_order() -> None:
    labels = np.array([2, 0, 1, 0, 2, 1, 0])  # by label: 1 3 6 | 2 5 | 0 4
    parts = shards(size=3).split(labels, 3, np.random.default_rng(0))
    assert sorted(part.tolist() for part in parts) == [[0, 2, 5], [1, 3, 6], [4]]


def test_the_papers_shards_are_unbalanced_multiples_of_thirty() -> None:
    labels = np.repeat(np.arange(10), 6000)
    sizes = np.array([len(p) for p in shards(size=30).split(labels, 100, generator(0, "partition"))])
    assert (sizes % 30 == 0).all()
    assert sizes.sum() == 60_000
    # 1 + Binomial(1900, 1/100) shards: mean 20, standard deviation 4.3.
    assert 100 < sizes.std() < 160


def test_shards_per_client_are_equally_many() -> None:
    labels = np.repeat(np.arange(10), 20)
    parts = shards(per_client=2).split(labels, 10, np.random.default_rng(0))
    assert [len(part) for part in parts] == [20] * 10
    assert max((label_counts(labels, parts) > 0).sum(axis=1)) <= 2


def test_the_size_that_the_error_recommends_is_the_largest_that_works() -> None:
    labels = np.arange(100) % 3
    assert len(shards(size=11).split(labels, 10, np.random.default_rng(0))) == 10
    with pytest.raises(ValueError, match="shards"):
        shards(size=12).split(labels, 10, np.random.default_rng(0))
