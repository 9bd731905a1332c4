"""The paper's CNN on real Fashion-MNIST, non-IID, for a few rounds."""

from __future__ import annotations

import os

import pytest

import fedalpha
from fedalpha.data import DataUnavailable, Pooled
from histories import same_model


@pytest.fixture(scope="module")
def fashion() -> Pooled:
    try:
        return fedalpha.federation("fashion-mnist", partition="shards(size=30)", clients=100, seed=0)
    except DataUnavailable as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))


@pytest.mark.slow
def test_it_learns_and_workers_change_nothing(fashion: Pooled) -> None:
    assert sum(len(fashion.client(i)) for i in range(100)) == 60_000
    runs = [
        fedalpha.run(
            fashion,
            "cnn",
            "FedSoftBetter(T=0.2)",
            rounds=3,
            select="uniform(C=0.1)",
            update="sgd(lr=0.05, batch=64)",
            evaluate=3,
            engine=f"embedded(workers={workers})",
        )
        for workers in (1, 2)
    ]
    assert same_model(*runs)
    assert runs[0].accuracy[-1] > runs[0].accuracy[0] + 0.15
    assert runs[0].model["conv2.weight"].shape == (64, 32, 3, 3)
