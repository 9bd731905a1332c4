"""quantity skew."""

from __future__ import annotations

import numpy as np

from fedalpha.data.partitions import PARTITIONS
from fedalpha.data.picture import label_counts


def test_quantity_skews_sizes_and_not_labels() -> None:
    labels = np.repeat(np.arange(4), 250)
    counts = label_counts(labels, PARTITIONS.parse("quantity(a=0.5)").split(labels, 5, np.random.default_rng(0)))
    sizes = counts.sum(axis=1)
    assert sizes.max() > 2 * sizes.min()
    assert (np.abs(counts - sizes[:, None] / 4) <= 1).all()
