"""Accuracy per client."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import fedalpha
from fedalpha.analysis.columns import Context, row
from fedalpha.analysis.fairness import Owners
from fedalpha.data import Generated, Pooled
from fedalpha.data.federations import Examples, Federation


def accuracies(federation: Federation, correct: list[int]) -> list[float]:
    found = Owners.of(federation).accuracies(correct)
    assert found is not None
    return found.tolist()


def told(federation: Federation, correct: list[int]) -> dict[str, Any]:
    """What a row says about the clients."""
    found = row(Context(round=0, correct=np.array(correct, dtype=np.float64), owners=Owners.of(federation)))
    return {name: value for name, value in found.items() if "client_accuracy" in name and value is not None}


def test_a_clients_accuracy_weighs_classes_by_its_own_labels() -> None:
    data = Examples(torch.zeros(5, 1), torch.tensor([0, 0, 0, 1, 1]))
    test = Examples(torch.zeros(4, 1), torch.tensor([0, 0, 1, 1]))
    federation = Pooled(data, np.array([0, 2, 4, 5]), test, classes=2)
    # class 0: 100 %, class 1: 50 %; the clients hold (2, 0), (1, 1), (0, 1)
    assert accuracies(federation, [1, 1, 1, 0]) == [1.0, 0.75, 0.5]
    found = told(federation, [1, 1, 1, 0])
    assert found == {"worst_client_accuracy": 0.5, "client_accuracy_spread": pytest.approx(np.std([1, 0.75, 0.5]))}


def test_a_class_without_test_samples_is_left_out() -> None:
    data = Examples(torch.zeros(3, 1), torch.tensor([0, 1, 1]))
    test = Examples(torch.zeros(2, 1), torch.tensor([0, 0]))
    federation = Pooled(data, np.array([0, 2, 3]), test, classes=2)
    assert accuracies(federation, [1, 0]) == [0.5]


def test_own_test_parts_come_first() -> None:
    parts = [(torch.zeros(4, 1), torch.tensor([0, 1, 0, 1]))] * 2
    federation = fedalpha.federation(parts, test=[(torch.zeros(2, 1), torch.tensor([0, 1]))] * 2)
    assert accuracies(federation, [1, 1, 0, 1]) == [1.0, 0.5]
    assert told(federation, [1, 1, 0, 1])["client_accuracy"] == [1.0, 0.5]


def test_regression_and_generated_clients_have_none() -> None:
    data = Examples(torch.zeros(2, 1), torch.zeros(2))
    assert told(Pooled(data, np.array([0, 1, 2]), data, classes=1), [1, 1]) == {}
    generated = Generated(
        3, lambda _: data, lambda ids: np.full(len(ids), 2), (torch.zeros(1, 1), torch.zeros(1)), classes=1
    )
    assert told(generated, [1]) == {}
