"""Synthetic(a, b)."""

from __future__ import annotations

import numpy as np
import pytest

import fedalpha
from fedalpha.data import DATASETS
from fedalpha.data.sets.synthetic import synthetic


def test_it_is_the_same_every_time_and_client_by_client() -> None:
    few, many = synthetic().make(3, seed=1), synthetic().make(5, seed=1)
    for one, other in zip(few, many, strict=False):
        assert (one.train_x == other.train_x).all()
        assert (one.train_y == other.train_y).all()
    assert (synthetic().make(1, seed=2)[0].train_x[:5] != few[0].train_x[:5]).any()


def test_b_moves_the_features_apart() -> None:
    def spread(b: float) -> float:
        return float(np.std([client.train_x.mean() for client in synthetic(a=0, b=b).make(40, seed=0)]))

    assert spread(4.0) > 3 * spread(0.0)


def test_a_and_b_are_standard_deviations_and_sizes_those_of_the_authors() -> None:
    """As in data/synthetic_1_1/generate_synthetic.py of litian96/FedProx: N(0, b) there has the deviation b."""
    clients = synthetic(a=0, b=0.5).make(200, seed=0)
    centres = [client.train_x.mean(axis=0) for client in clients]  # B_k + N(0, 1) per feature, and the samples' noise
    assert np.var([c.mean() for c in centres]) == pytest.approx(0.5**2 + 1 / 60, rel=0.2)  # as variances: 0.52
    sizes = np.log([len(client.train_x) - 50 + 0.5 for client in clients])
    assert np.mean(sizes) == pytest.approx(4, abs=0.4)
    assert np.std(sizes) == pytest.approx(2, abs=0.3)


def test_a_federation_of_it_trains_and_has_test_parts_of_its_own() -> None:
    made = fedalpha.federation("synthetic(a=0.5, b=0.5)", clients=8, seed=0)
    assert (made.clients, made.shape, made.classes) == (8, (60,), 10)
    history = fedalpha.run(
        made, "softmax", "FedAvg", rounds=5, update="sgd(lr=0.01, batch=10)", engine="embedded(workers=1)"
    )
    assert history.accuracy[-1] > history.accuracy[0] + 0.1
    assert history.rows[-1]["worst_client_accuracy"] == min(history.rows[-1]["client_accuracy"])


@pytest.mark.parametrize("text", ["synthetic(a=-1)", "synthetic(classes=1)", "synthetic(least=0.5)"])
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="synthetic:"):
        DATASETS.parse(text)
