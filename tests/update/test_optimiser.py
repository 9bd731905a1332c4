"""Optimisers of torch as client updates, rates per client, clipping and precision."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fedalpha
from fedalpha.data import Examples
from fedalpha.models import Template
from fedalpha.rng import Draws
from fedalpha.task import Task
from fedalpha.update import UPDATES, Broadcast, Site
from fedalpha.update.optimiser import optimisers
from fedalpha.update.sgd import clipped

X = torch.linspace(-1, 1, 24).view(12, 2)
Y = torch.arange(12) % 3


def trained(text: str, round: int = 0, client: int = 0) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    module = nn.Linear(2, 3)
    broadcast = Broadcast(Template(module), dict(module.state_dict()))
    report = UPDATES.parse(text).update(Site(Task()), broadcast, Examples(X, Y), {}, Draws(0, round, client))
    return {name: value.clone() for name, value in (report.parameters or {}).items()}


def by_hand(kind: type, **options: object) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    module = nn.Linear(2, 3)
    optimiser = kind(module.parameters(), **options)
    for _ in range(3):
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(X), Y).backward()
        optimiser.step()
    return dict(module.state_dict())


@pytest.mark.parametrize("name", sorted(optimisers()))
def test_its_steps_are_those_of_torch(name: str) -> None:
    found, hand = trained(f"local({name}, lr=0.01, batch=none, epochs=3)"), by_hand(optimisers()[name], lr=0.01)
    for key in hand:
        assert found[key] == pytest.approx(hand[key], abs=1e-5)


def test_options_reach_the_optimiser_and_sgd_is_the_same_either_way() -> None:
    options = "lr=0.1, batch=4, epochs=2, momentum=0.9, weight_decay=0.01"
    ours, torchs = trained(f"sgd({options})"), trained(f"local(sgd, {options})")
    assert all(torch.equal(ours[key], torchs[key]) for key in ours)
    hand = by_hand(torch.optim.AdamW, lr=0.01, betas=(0.5, 0.9), weight_decay=0.3)
    found = trained("local(adamw, lr=0.01, batch=none, epochs=3, betas=[0.5, 0.9], weight_decay=0.3)")
    assert all(found[key] == pytest.approx(hand[key], abs=1e-5) for key in hand)


@pytest.mark.parametrize("text", ["local(adamw, lr=0.001)", "local(sgd, lr=0.1, momentum=0.9, nesterov=true)"])
def test_text_parses_back(text: str) -> None:
    update = UPDATES.parse(text)
    assert UPDATES.parse(str(update)) == update
    assert str(update).startswith(text.split(",")[0])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("local(adamm)", "unknown optimiser 'adamm'; did you mean"),
        ("local(adamw, momentum=0.9)", "adamw has no momentum; it has weight_decay, betas, eps, amsgrad"),
        ("local(lbfgs)", "use the client update lbfgs"),
        ("local(sparseadam)", "sparse gradients"),
        ("local(adamw, betas=[2, 3])", "Invalid beta"),
        ("local(adamw, lr=-1)", "positive"),
        ("sgd(clip=0)", "norm > 0"),
        ("sgd(precision=half)", "full, bf16"),
        ("scaffold(clip=1.0)", "clip = 1.0; the method has none"),
        ("page(precision=bf16)", "precision = bf16; the method has none"),
        ("sgd(lr=per_client([]))", "one learning rate per client"),
        ("sgd(lr=per_client([0.1, 0]))", "positive"),
    ],
)
def test_nonsense_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        UPDATES.parse(text)


def test_rates_per_client() -> None:
    rates = "sgd(lr=per_client([0.1, 0.5], decay=0.5), batch=none)"
    for client, rate in enumerate((0.1, 0.5)):
        for round in (0, 1):
            expected = trained(f"sgd(lr={rate * 0.5**round}, batch=none)", round, client)
            assert all(torch.equal(v, expected[k]) for k, v in trained(rates, round, client).items())
    data = fedalpha.federation((X, Y), clients=3)
    with pytest.raises(ValueError, match="2 rates for 3 clients; give one per client"):
        fedalpha.run(data, "softmax", rounds=1, update=rates)


def test_rates_per_client_are_trained_one_by_one() -> None:
    data = fedalpha.federation("synthetic(a=0, b=0, least=4)", clients=256)
    text = ", ".join(["0.1"] * 256)
    same, each = (
        fedalpha.run(data, "softmax", rounds=1, update=f"sgd(lr={lr}, steps=1)", engine=f"embedded({options})")
        for lr, options in (("0.1", "vectorise=false"), (f"per_client([{text}])", ""))
    )
    assert all(torch.equal(v, each.model[k]) for k, v in same.model.items())


def test_clipping_bounds_the_step() -> None:
    free, held = trained("sgd(lr=1.0, batch=none)"), trained("sgd(lr=1.0, batch=none, clip=0.01)")
    torch.manual_seed(0)
    start = dict(nn.Linear(2, 3).state_dict())

    def length(found: dict[str, torch.Tensor]) -> float:
        return float(torch.cat([(found[k] - start[k]).flatten() for k in start]).norm())

    assert length(free) > 0.02
    assert length(held) == pytest.approx(0.01, rel=1e-3)
    loose = trained("sgd(lr=1.0, batch=none, clip=100.0)")
    assert all(torch.equal(loose[k], free[k]) for k in free)
    assert clipped([torch.zeros(2)], 1.0)[0].tolist() == [0, 0]


def test_bf16_is_close_and_leaves_parameters_in_full_precision() -> None:
    full, half = trained("sgd(lr=0.1)"), trained("sgd(lr=0.1, precision=bf16)")
    assert all(value.dtype == torch.float32 for value in half.values())
    assert any(not torch.equal(full[k], half[k]) for k in full)
    assert all(half[k] == pytest.approx(full[k], abs=0.02) for k in full)


def test_a_run_with_adamw_learns() -> None:
    data = fedalpha.federation("digits", clients=5)
    history = fedalpha.run(data, "mlp", rounds=3, update="local(adamw, lr=0.01)", engine="embedded(workers=1)")
    assert history.accuracy[-1] > 0.8
