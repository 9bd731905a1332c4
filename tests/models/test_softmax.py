"""Softmax regression."""

from __future__ import annotations

from fedalpha.models import softmax


def test_it_is_one_linear_layer() -> None:
    values = softmax().layers((1, 8, 8), 10).state_dict()
    assert {name: tuple(v.shape) for name, v in values.items()} == {"output.weight": (10, 64), "output.bias": (10,)}
