"""Models over sequences of symbols: they learn, and an embedding is trained in both paths."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fedalpha
from fedalpha.models import MODELS
from fedalpha.update.vectorised import stackable

START = torch.arange(60) % 5
X = (START[:, None] + torch.arange(9)) % 5
"""Each symbol is followed by the next one, modulo 5."""


@pytest.mark.parametrize("model", ["lstm(hidden=16, depth=1)", "transformer(width=16, depth=1, heads=2)"])
def test_it_learns_the_next_symbol_at_every_position(model: str) -> None:
    data = fedalpha.federation((X[:, :-1], X[:, 1:]), clients=3, test=(X[:9, :-1], X[:9, 1:]))
    assert data.classes == 5
    options = {"rounds": 6, "update": "local(adamw, lr=0.03, batch=5)", "engine": "embedded(workers=1)"}
    history = fedalpha.run(data, model, **options)
    assert history.accuracy[0] < 0.6
    assert history.accuracy[-1] > 0.95
    last = model[:-1] + ", last=true)"
    single = fedalpha.federation((X[:, :-1], X[:, -1]), clients=3)
    assert fedalpha.run(single, last, **options).accuracy[-1] > 0.9


def test_a_position_does_not_see_what_comes_after_it() -> None:
    module = MODELS.parse("transformer(width=16, heads=2)").layers((8,), 5).eval()
    one, other = X[:1, :8], X[:1, :8].clone()
    other[0, 5:] = 0
    assert torch.equal(module(one)[..., :5], module(other)[..., :5])
    assert not torch.equal(module(one)[..., 5:], module(other)[..., 5:])


def embedded() -> nn.Module:
    return nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(24, 5))


def test_an_embedding_is_trained_many_clients_at_a_time_and_one_by_one() -> None:
    x = X[:, :-1].repeat(18, 1)[:1024]
    data = fedalpha.federation((x, x[:, -1]), clients=256, test=(x[:20], x[:20, -1]))
    assert stackable(embedded(), fedalpha.update.sgd())
    together, single = (
        fedalpha.run(data, embedded, rounds=2, update="sgd(lr=0.1, batch=2)", engine=f"embedded(vectorise={way})")
        for way in ("true", "false")
    )
    for name, value in together.model.items():
        assert torch.allclose(value, single.model[name], atol=1e-5)
    assert not torch.equal(together.model["0.weight"], fedalpha.run(data, embedded, rounds=0).model["0.weight"])


@pytest.mark.parametrize(
    ("text", "said"), [("lstm(hidden=0)", "at least 1"), ("transformer(width=10, heads=4)", "multiple of heads")]
)
def test_nonsense_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        MODELS.parse(text)
