"""Whole counts in given proportions, and stratified owners."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedalpha.data.partitions.dealing import apportion, stratified

patiently = settings(deadline=None)  # a busy machine is not a failure


@patiently
@given(
    labels=st.lists(st.integers(0, 4), min_size=1, max_size=200).map(np.array),
    weights=st.lists(st.floats(0.01, 100), min_size=1, max_size=12),
    seed=st.integers(0, 1000),
)
def test_stratified_sizes_are_exact_and_label_counts_within_one_of_proportional(labels, weights, seed) -> None:
    codes = np.unique(labels, return_inverse=True)[1]
    sizes = apportion(np.array(weights), len(codes))
    owners = stratified(codes, sizes, np.random.default_rng(seed))
    assert np.array_equal(np.bincount(owners, minlength=len(sizes)), sizes)
    table = np.zeros((len(sizes), codes.max() + 1))
    np.add.at(table, (owners, codes), 1)
    assert (np.abs(table - np.outer(sizes, np.bincount(codes)) / len(codes)) <= 1 + 1e-9).all()


@patiently
@given(weights=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30), total=st.integers(0, 10**5))
def test_apportion_rounds_each_share_up_or_down(weights: list[float], total: int) -> None:
    whole = apportion(np.array(weights), total)
    exact = np.array(weights) / sum(weights) * total
    assert whole.sum() == total
    assert (np.abs(whole - exact) < 1 + 1e-6).all()
