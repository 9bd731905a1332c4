"""CIFAR-10: its published statistics."""

from __future__ import annotations

import numpy as np
import pytest

from fedalpha.data.sets.cifar10 import cifar10
from fetched import real


@pytest.fixture(scope="module")
def found():
    real(cifar10().files)
    return cifar10().load()


def test_its_labels_and_channel_means_are_the_published_ones(found) -> None:
    assert found.train_x.shape == (50_000, 3, 32, 32)
    assert found.train_y[:5].tolist() == [6, 9, 9, 4, 1]
    assert found.test_y[:5].tolist() == [3, 8, 8, 0, 6]
    assert found.train_x.mean(axis=(0, 2, 3)) / 255 == pytest.approx([0.4914, 0.4822, 0.4465], abs=5e-5)
    assert np.bincount(found.test_y).tolist() == [1000] * 10
