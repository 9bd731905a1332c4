"""One label per client."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedalpha.data.partitions.one_label import one_label

patiently = settings(deadline=None)  # a busy machine is not a failure


@patiently
@given(counts=st.lists(st.integers(1, 30), min_size=1, max_size=6), extra=st.integers(0, 20), seed=st.integers(0, 99))
def test_one_label_each(counts: list[int], extra: int, seed: int) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    clients = min(len(counts) + extra, len(labels))
    parts = one_label().split(labels, clients, np.random.default_rng(seed))
    assert all(len(np.unique(labels[part])) == 1 for part in parts)
