"""The Flower strategy gives the embedded engine's weights and model, to the bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import fedalpha
from fedalpha.data import Pooled
from fedalpha.flower import FedAlpha, client_app, initial_arrays
from fedalpha.flower.pytorch import to_parameters


class Net(nn.Module):
    """Convolution, batch norm (an integer buffer) and dropout (a generator)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.2), nn.Flatten())
        self.head = nn.Linear(144, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


@pytest.mark.parametrize(
    ("strategy", "model", "share"),
    [
        ("FedAvg", "mlp", 1.0),
        ("FedSoftWorse(T=0.2)", Net, 1.0),
        ("FedSoftWorse(T=0.2)", "mlp", 0.7),
        ("FedWorse(k=0.3)", "mlp", 1.0),
        ("FedSoftBetter(T=0.2, loss=after)", "softmax", 0.5),
        ("FedSoftWorse(T=0.5, loss=train, optima=estimated)", "softmax", 0.7),
        ("switch(FedWorse(k=2), FedAvg, at=2)", "softmax", 1.0),
        ("FedMGDA", "softmax", 0.7),
        ("qFedAvg(q=1)", "softmax", 0.7),
        ("FedDisco", "softmax", 0.7),
        ("FedAWA(lr=0.5)", "softmax", 0.7),
        ("unbiased(FedAvg)", "softmax", 0.5),
    ],
)
def test_the_same_alpha_and_the_same_model(
    digits: Pooled, grid_of: Any, strategy: str, model: Any, share: float
) -> None:
    update = "sgd(lr=0.1, batch=20, momentum=0.5)"
    expected = fedalpha.run(
        digits,
        model,
        strategy,
        rounds=4,
        seed=5,
        select=f"uniform(C={share})",
        update=update,
        engine="embedded(workers=1)",
    )
    app = client_app(
        model, lambda context: digits.client(int(context.node_config["partition-id"])), update, classes=10, seed=5
    )
    rule = FedAlpha(strategy, seed=5, fraction_train=share, fraction_evaluate=0.0)
    grid = grid_of(app, clients=[7, 2, 11, 0, 5, 1, 9, 3, 10, 4, 8, 6])  # nodes in another order
    result = rule.start(grid, initial_arrays(model, digits.shape, 10, seed=5), num_rounds=4)
    for row, other in zip(rule.rows, expected.rows[1:], strict=True):
        evaluated = {"accuracy", "loss", "worst_client_accuracy", "client_accuracy_spread", "seconds"}
        assert row.keys() >= other.keys() - evaluated
        assert {key: row[key] for key in other.keys() - evaluated} == {
            key: other[key] for key in other.keys() - evaluated
        }
    found = to_parameters(result.arrays)
    assert found.keys() == expected.model.keys()
    for name, value in found.items():
        assert value.numpy().tobytes() == expected.model[name].numpy().tobytes(), name
