"""The NumPy sum of the Flower strategy and the torch sum of the engines agree to the bit."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch

from fedalpha.combine import Reports, mean, weighted_sum
from fedalpha.flower import sums
from fedalpha.models import BuiltIn, softmax
from fedalpha.update import Broadcast, Report


def models(count: int, width: int) -> list[sums.Arrays]:
    rng = np.random.default_rng([count, width])
    return [
        {
            "zero": np.array([-0.0, 0.0]),
            "w": rng.normal(size=(width, 3)).astype(np.float32),
            "d": rng.normal(size=width) * 10.0 ** rng.integers(-9, 9, width),
            "h": rng.normal(size=width).astype(np.float16),
            "steps": np.int64(rng.integers(100)) * np.ones((), dtype=np.int64),
        }
        for _ in range(count)
    ]


@pytest.mark.parametrize(("count", "width"), [(1, 5), (3, 1), (31, 17), (70, 1000), (200, 33)])
def test_numpy_and_torch_sums_have_the_same_bytes(count: int, width: int) -> None:
    alpha = np.random.default_rng(count).dirichlet(np.ones(count))
    alpha[:: max(2, count // 3)] *= 0 if count > 3 else 1
    clients = models(count, width)
    in_torch = weighted_sum(alpha, [{k: torch.from_numpy(np.array(v)) for k, v in m.items()} for m in clients]).values
    running = sums.Running(alpha)
    for place, model in enumerate(clients):
        running.add(place, model)
    in_numpy = running.total()
    assert in_numpy.keys() == in_torch.keys()
    for name, value in in_numpy.items():
        assert np.asarray(value).tobytes() == in_torch[name].numpy().tobytes(), name


@pytest.mark.parametrize("count", [1, 2, 33, 63, 64, 65, 95, 96, 97, 130])
def test_the_running_sum_has_the_bytes_of_the_torch_sum_whoever_is_absent(count: int) -> None:
    rng, clients = np.random.default_rng(count), models(count, 2)
    for absent in (0.0, 0.1, 0.5):
        alpha = rng.dirichlet(np.ones(count)) * (rng.random(count) > absent / 2)
        there = rng.random(count) > absent
        running = sums.Running(alpha)
        for place in np.flatnonzero(there).tolist():
            running.add(place, clients[place])
        in_numpy = running.total()
        in_torch = weighted_sum(
            np.where(there, alpha, 0.0), [{k: torch.from_numpy(np.array(v)) for k, v in m.items()} for m in clients]
        ).values
        for name, value in in_numpy.items():
            assert np.asarray(value).tobytes() == in_torch[name].numpy().tobytes(), name


@pytest.mark.parametrize(("clients", "models"), [(4, 4), (16, 4), (64, 4), (96, 5)])
def test_a_sum_of_few_models_holds_itself_and_two_of_them(clients: int, models: int) -> None:
    """Blocks of three and more have an array of their own, as large as the sum, but models do not wait for it."""
    size = 600_000
    running = sums.Running(np.full(clients, 1 / clients))
    tracemalloc.start()
    for place in range(clients):
        running.add(place, {"w": np.full(size, place, dtype=np.float32)})
    peak = tracemalloc.get_traced_memory()[1] / (4 * size)
    tracemalloc.stop()
    assert models - 0.1 < peak < models + 0.5


@pytest.mark.parametrize("simplex", [True, False])
def test_the_mean_has_the_bytes_of_the_mean_rule(simplex: bool) -> None:
    clients = models(9, 40)
    alpha = np.random.default_rng(1).dirichlet(np.ones(9)) * (1 if simplex else 1.7)
    current = models(10, 40)[0]
    broadcast = Broadcast(BuiltIn(softmax(), (1,), 2), {k: torch.from_numpy(np.array(v)) for k, v in current.items()})
    reports = Reports(
        [Report(i, {k: torch.from_numpy(np.array(v)) for k, v in m.items()}, {}, 1, 1) for i, m in enumerate(clients)]
    )
    expected = mean().combine({}, broadcast, reports, alpha, simplex)[0].parameters
    found = sums.weighted_mean(alpha, clients, current, simplex)
    for name, value in found.items():
        assert value.dtype == current[name].dtype
        assert value.tobytes() == expected[name].numpy().tobytes(), name


def test_nobody_with_weight_off_the_simplex_keeps_the_model() -> None:
    current = models(2, 4)[0]
    found = sums.weighted_mean(np.zeros(2), models(2, 4), current, simplex=False)
    assert all(found[k].tobytes() == current[k].tobytes() for k in current)
