"""The same label distribution for every client."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedalpha.data.partitions.iid import iid
from fedalpha.data.picture import label_counts

patiently = settings(deadline=None)  # a busy machine is not a failure


@patiently
@given(n=st.integers(1, 300), clients=st.integers(1, 40))
def test_equal_sizes_differ_by_at_most_one(n: int, clients: int) -> None:
    if clients <= n:
        sizes = [len(part) for part in iid().split(np.arange(n) % 7, clients, np.random.default_rng(0))]
        assert max(sizes) - min(sizes) <= 1


def test_sizes_with_the_right_sum_are_counts_and_others_are_shares() -> None:
    labels = np.array([0] * 6 + [1] * 4)
    for sizes in ([7, 2, 1], [0.7, 0.2, 0.1], [70, 20, 10]):
        parts = iid(sizes=sizes).split(labels, 3, np.random.default_rng(0))
        assert [len(part) for part in parts] == [7, 2, 1]
    # 7 of 10 samples: 4.2 of label 0 and 2.8 of label 1.
    assert label_counts(labels, parts)[0].tolist() in ([4, 3], [5, 2])


def test_iid_by_hand() -> None:
    labels = np.array([0, 1, 0, 1, 0, 1, 0, 1])
    parts = iid().split(labels, 4, np.random.default_rng(3))
    assert label_counts(labels, parts).tolist() == [[1, 1]] * 4
