"""Server optimisers against torch.optim and by hand, and what they are for."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import fedalpha
from fedalpha.apply import APPLIES
from fedalpha.data import Pooled
from fedalpha.models import Template
from fedalpha.update import Broadcast
from histories import same_model

START = torch.tensor([1.0, -2.0, 0.5, 0.0])
GRADIENTS = [
    torch.tensor([0.5, -0.1, 0.0, 2.0]),
    torch.tensor([-0.5, 0.3, 1.0, 0.1]),
    torch.tensor([0.1, 0.1, 0.1, -3]),
]


class Vector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(START.clone())
        self.register_buffer("seen", torch.zeros(2))
        self.register_buffer("count", torch.tensor(0))


def play(text: str) -> list[torch.Tensor]:
    """The models after rounds whose pseudo-gradients are GRADIENTS; buffers come from the aggregate."""
    rule = APPLIES.parse(text)
    parameters = {k: v.clone() for k, v in Vector().state_dict().items()}
    broadcast, state, found = Broadcast(Template(Vector()), parameters), rule.init(), []
    for round, gradient in enumerate(GRADIENTS):
        new = {"w": broadcast.parameters["w"] - gradient, "seen": torch.full((2,), 7.0), "count": torch.tensor(round)}
        broadcast, state = rule.apply(state, broadcast, Broadcast(broadcast.architecture, new))
        assert broadcast.parameters["seen"].tolist() == [7, 7]
        assert broadcast.parameters["count"] == round
        found.append(broadcast.parameters["w"])
    return found


def test_fedavgm_is_torch_sgd_with_momentum() -> None:
    w = START.clone().requires_grad_()
    optimiser = torch.optim.SGD([w], lr=0.7, momentum=0.8)
    for gradient, found in zip(GRADIENTS, play("fedavgm(lr=0.7, beta=0.8)"), strict=True):
        w.grad = gradient.clone()
        optimiser.step()
        torch.testing.assert_close(found, w.detach())


def test_fedadagrad_is_torch_adagrad() -> None:
    w = START.clone().requires_grad_()
    optimiser = torch.optim.Adagrad([w], lr=0.1, initial_accumulator_value=0.01, eps=0.1)
    for gradient, found in zip(GRADIENTS, play("fedadagrad(lr=0.1, tau=0.1)"), strict=True):
        w.grad = gradient.clone()
        optimiser.step()
        torch.testing.assert_close(found, w.detach())


def test_adam_and_yogi_by_hand() -> None:
    """One coordinate: Δ = 2, then 0.1; tau = 1, beta1 = 0.5, beta2 = 0.75, lr = 1."""
    adam = [0.0 - 1.0 / (math.sqrt(0.75 + 0.25 * 4) + 1)]
    adam.append(adam[0] - 0.55 / (math.sqrt(0.75 * 1.75 + 0.25 * 0.01) + 1))
    yogi = [0.0 - 1.0 / (math.sqrt(1 + 0.25 * 4) + 1)]  # v = 1 < Δ² = 4: it rises
    yogi.append(yogi[0] - 0.55 / (math.sqrt(2 - 0.25 * 0.01) + 1))  # v = 2 > Δ² = 0.01: it falls
    for text, expected in (("fedadam", adam), ("fedyogi", yogi)):
        found = play(f"{text}(lr=1, beta1=0.5, beta2=0.75, tau=1)")
        assert found[0][3].item() == pytest.approx(expected[0])
        assert found[1][3].item() == pytest.approx(expected[1])


def test_momentum_zero_is_replacement_up_to_rounding(digits: Pooled) -> None:
    plain = fedalpha.run(digits, "softmax", rounds=3, engine="embedded(workers=1)")
    momentum = fedalpha.run(digits, "softmax", rounds=3, engine="embedded(workers=1)", apply="fedavgm(lr=1, beta=0)")
    for name, value in plain.model.items():
        torch.testing.assert_close(momentum.model[name], value)


def test_momentum_speeds_up_a_slow_run(digits: Pooled) -> None:
    slow = {"rounds": 12, "engine": "embedded(workers=1)", "update": "sgd(lr=0.01)"}
    plain = fedalpha.run(digits, "softmax", **slow)
    for text in ("fedavgm(lr=1, beta=0.9)", "fedadam(lr=0.03)", "fedyogi(lr=0.03)", "fedadagrad(lr=0.1)"):
        assert fedalpha.run(digits, "softmax", **slow, apply=text).loss[-1] < 0.9 * plain.loss[-1], text


def test_workers_change_no_byte(digits: Pooled) -> None:
    runs = [
        fedalpha.run(digits, "mlp", rounds=2, engine=f"embedded(workers={w})", apply="fedyogi(lr=0.02)") for w in (1, 2)
    ]
    assert same_model(*runs)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fedadam(lr=0)", "lr = 0; give a positive number"),
        ("fedadam(beta2=1)", r"beta2 = 1; give a number in \[0, 1\)"),
        ("fedavgm(beta=-1)", "beta = -1; give"),
        ("fedyogi(tau=0)", "tau = 0; give a positive"),
        ("fedadm", "did you mean 'fedadam'"),
    ],
)
def test_bad_arguments_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        APPLIES.parse(text)


@pytest.mark.parametrize("text", [text for entry in APPLIES for text in entry.examples])
def test_the_text_parses_back(text: str) -> None:
    rule = APPLIES.parse(text)
    assert APPLIES.parse(str(rule)) == rule
