"""Label skew from a dirichlet distribution."""

from __future__ import annotations

import numpy as np

from fedalpha.data.partitions import PARTITIONS
from fedalpha.data.picture import label_counts
from fedalpha.rng import generator


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
    # dirichlet(½, ½, ½, ½): mean 1/4, variance (1/4)(3/4)/(4·½ + 1) = 1/16.
    assert np.allclose(shares.mean(axis=0), 0.25, atol=0.04)
    assert np.allclose(shares.var(axis=0), 1 / 16, atol=0.012)
