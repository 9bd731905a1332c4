"""FedAWARE: momenta of all clients that were seen, and a solver that is checked by its conditions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedalpha
from fedalpha.combine import COMBINES, Reports, fedaware
from fedalpha.combine.fedaware import direction
from fedalpha.data import Pooled
from fedalpha.update import Broadcast, Report

SENT = Broadcast(None, {"w": torch.zeros(3), "n": torch.tensor(4)})  # type: ignore[arg-type]


def told(moves: dict[int, list[float]]) -> Reports:
    return Reports([Report(i, {"w": torch.tensor(m), "n": torch.tensor(9)}, {}, 1, 1) for i, m in moves.items()])


def test_the_direction_has_the_least_length() -> None:
    """Optimality: the smallest vector has the same inner product, its squared length, with all vectors it uses."""
    rng = torch.Generator().manual_seed(0)
    for _ in range(10):
        vectors = [torch.randn(6, generator=rng) + 0.5 for _ in range(4)]
        found = direction(vectors)
        products = torch.stack([found @ (v / v.norm()).double() for v in vectors])
        assert float(products.min()) == pytest.approx(float(found @ found), rel=1e-5)


def test_absent_clients_count_with_their_momenta() -> None:
    rule = fedaware(lr=1.0, momentum=0.5)
    first, state = rule.combine(rule.init(), SENT, told({0: [-1.0, 0, 0], 1: [0, -2.0, 0]}), np.array([0.5, 0.5]), True)
    np.testing.assert_allclose(first.parameters["w"], [-0.5, -0.5, 0], atol=1e-6)  # both directions, half each
    assert first.parameters["n"] == 4
    second, state = rule.combine(state, SENT, told({0: [-1.0, 0, 0]}), np.array([1.0]), True)
    np.testing.assert_allclose(second.parameters["w"], [-0.5, -0.5, 0], atol=1e-6)  # client 1 is remembered
    np.testing.assert_allclose(state["clients"]["0"], [0.75, 0, 0])  # 0.5·0.5 + 0.5·1
    np.testing.assert_allclose(state["clients"]["1"], [0, 1.0, 0])


def test_it_trains(digits: Pooled) -> None:
    same = {"rounds": 3, "combine": "fedaware(lr=1)", "engine": "embedded(workers=1)"}
    history = fedalpha.run(digits, "mlp", select="uniform(C=0.5)", **same)
    assert history.loss[-1] < history.loss[0]
    with pytest.raises(ValueError, match="momentum = 0"):
        COMBINES.parse("fedaware(momentum=0)")
