"""The NumPy sum of the Flower strategy and the torch sum of the engines agree to the bit."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch
from flwr.app import Array

from fedalpha.combine import Reports, mean, weighted_sum
from fedalpha.flower import packing, sums
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


@pytest.fixture(params=["numpy", "compiled"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways in which values are added."""
    if request.param == "compiled":
        pytest.importorskip("numba", exc_type=ImportError)
        monkeypatch.setattr(sums, "_WORTH_COMPILING", 1)


@pytest.mark.usefixtures("way")
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


@pytest.mark.usefixtures("way")
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


@pytest.mark.usefixtures("way")
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


def test_arrays_of_any_layout_are_summed_alike() -> None:
    """Fortran order, several pieces, and several shares of the work."""
    rng = np.random.default_rng(2)
    clients = [{"w": rng.normal(size=(700, 400)).astype(np.float32)} for _ in range(3)]
    alpha = np.array([0.2, 0.3, 0.5])
    for order in "CF":
        laid = [{"w": np.asarray(m["w"], order=order)} for m in clients]
        found = sums.weighted_mean(alpha, laid, clients[0], simplex=True)["w"]
        total = np.zeros((700, 400))
        for a, m in zip(alpha, clients, strict=True):
            total += m["w"].astype(np.float64) * a
        assert found.tobytes() == total.astype(np.float32).tobytes()


CURRENT: sums.Arrays = {"w": np.full(20_000, 3.0, dtype=np.float32), "n": np.full((), 2**60)}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("value", "bound", "reason"),
    [
        (2.9e4, 1e4, None),  # 3.0 is the largest value that was sent
        (-2.9e4, 1e4, None),
        (3.1e4, 1e4, "'w' holds 3"),
        (-3.1e4, 1e4, "'w' holds 3"),
        (np.nan, 1e4, "'w' holds NaN or infinity"),
        (-np.inf, 1e4, "'w' holds NaN or infinity"),
        (np.inf, 1e300, "'w' holds NaN or infinity"),
        (np.nan, 1e300, "'w' holds NaN or infinity"),
        (6e4, 1e300, None),
        (3e38, 1e4, "'w' holds"),
        (1e200, 1e4, "'w' holds"),
        (3e38, 1e300, None),
    ],
)
@pytest.mark.parametrize("place", [0, 8_191, 8_192, 19_999])
def test_a_value_beyond_the_bound_is_found_wherever_it_is(
    value: float, bound: float, reason: str | None, place: int, dtype: type[np.floating]
) -> None:
    array = np.ones(20_000, dtype=dtype)
    with np.errstate(over="ignore"):
        array[place] = value
    infinite = not np.isfinite(array[place])
    for form in (array, np.asfortranarray(array.reshape(100, 200))):
        found = sums.beyond({"w": form, "n": CURRENT["n"]}, CURRENT, bound)
        if infinite:
            assert found == "'w' holds NaN or infinity"
        else:
            assert (found or "").startswith(reason) if reason else found is None
        assert sums.all_finite(form) is not infinite


def test_an_array_without_values_is_within_any_bound() -> None:
    empty = {"w": np.zeros((0, 3), dtype=np.float32)}
    assert sums.beyond(empty, empty, 1e4) is None
    assert sums.all_finite(empty["w"])


def test_the_largest_values_of_the_current_model_are_looked_for_once_and_where_needed() -> None:
    known: dict[str, float] = {}
    sums.beyond({"w": np.ones(3, dtype=np.float32)}, CURRENT, 1e4, known)
    assert known == {}
    sums.beyond({"w": np.full(3, 2e4, dtype=np.float32)}, CURRENT, 1e4, known)
    assert known == {"w": 3.0}


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(24, dtype=np.float16).reshape(4, 6)[::2, ::3],
        np.zeros((0, 3), dtype=np.int64),
        np.array(3, dtype=np.int32),
        np.array([True, False]),
        np.arange(3, dtype=">f4"),
        np.array([1 + 2j]),
    ],
)
def test_arrays_are_packed_as_flower_packs_them(value: np.ndarray) -> None:
    assert packing.record_of({"w": value})["w"] == Array(value)
