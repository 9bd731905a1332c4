"""FedNova by hand, and on unequal local work."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import fedalpha
from fedalpha.data import Generated
from fedalpha.strategies import STRATEGIES
from fedalpha.strategies.fednova import pulled
from fedalpha.task import Task


def test_fednova_by_hand() -> None:
    alpha = fedalpha.weights("FedNova", [0, 0], [1, 3], steps=[2, 4])  # τ_eff = 0.5 + 3 = 3.5
    np.testing.assert_allclose(alpha, [3.5 * 0.25 / 2, 3.5 * 0.75 / 4])
    one, two = fedalpha.weights("FedNova(momentum=0.5)", [0, 0], steps=[1, 2])  # ‖a‖₁ = 1 and 1 + 1.5
    np.testing.assert_allclose([one, two], [1.75 * 0.5 / 1, 1.75 * 0.5 / 2.5])


@pytest.mark.parametrize("momentum", [0.0, 0.7])
def test_steps_with_a_pull_count_as_far_as_they_go(momentum: float) -> None:
    """‖a‖₁ by definition: Σ |∂(w_τ − w_0)/∂g_k|/η over the gradients g_k of τ steps of FedProx with momentum."""
    for tau in (1, 2, 5, 9):
        way, speed = np.zeros(tau), np.zeros(tau)  # (w − w_0)/(−η), linear in the gradients
        for k in range(tau):
            speed = momentum * speed + np.eye(tau)[k] - 0.03 * way
            way = way + speed
        found = pulled(np.array([float(tau)]), momentum, 0.03)
        assert (way > 0).all()
        np.testing.assert_allclose(found, [way.sum()], rtol=1e-12)
    np.testing.assert_allclose(pulled(np.array([4.0, 2.0]), 0.0, 0.1), [1 + 0.9 + 0.81 + 0.729, 1.9])


class Scalar(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w.expand(len(x), 1)


def test_fednova_is_unbiased_where_clients_take_different_numbers_of_steps() -> None:
    """Client 0 has 8 samples at +1, client 1 has 2 at −1, batches of 1: 8 and 2 steps; the optimum is 0.6."""

    def client(id: int) -> tuple[torch.Tensor, torch.Tensor]:
        n = (8, 2)[id]
        return torch.zeros(n, 1), torch.full((n, 1), (1.0, -1.0)[id])

    data = Generated(2, client, lambda ids: np.array([8.0, 2.0])[ids], client(0), classes=1)
    task = Task(loss=nn.functional.mse_loss, correct=None)
    same = {"rounds": 60, "update": "sgd(lr=0.005, batch=1)", "engine": "embedded(workers=1)"}
    ends = {s: fedalpha.run(data.with_task(task), Scalar, s, **same).model["w"].item() for s in ("FedAvg", "FedNova")}
    assert ends["FedNova"] == pytest.approx(0.6, abs=0.05)
    assert ends["FedAvg"] > 0.8  # near 8·8 − 2·2 over 8·8 + 2·2


def test_fednova_knows_the_pull_of_fedprox() -> None:
    """Constant gradients ±1: τ steps with a pull go Σ(1 − ημ)^k far, so that plain steps would leave a bias."""

    def client(id: int) -> tuple[torch.Tensor, torch.Tensor]:
        n = (8, 2)[id]
        return torch.zeros(n, 1), torch.full((n, 1), (1.0, -1.0)[id])

    data = Generated(2, client, lambda ids: np.array([8.0, 2.0])[ids], client(0), classes=1)
    task = Task(loss=lambda output, target: -(output * target).mean(), correct=None, signed=True)
    same = {"update": "fedprox(mu=2, lr=0.1, batch=1)", "engine": "embedded(workers=1)"}
    history = fedalpha.run(data.with_task(task), Scalar, "FedNova", rounds=1, **same)
    tau_eff = 0.8 * 8 + 0.2 * 2  # plain steps, as in the authors' code
    np.testing.assert_allclose(history.model["w"].item(), 0.1 * tau_eff * (0.8 - 0.2), rtol=1e-5)
    a = [sum(0.8**k for k in range(steps)) for steps in (8, 2)]
    np.testing.assert_allclose(history.rows[1]["alpha"], [tau_eff * 0.8 / a[0], tau_eff * 0.2 / a[1]], rtol=1e-12)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FedNova(momentum=1)", "momentum = 1"),
    ],
)
def test_bad_arguments_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        STRATEGIES.parse(text)
