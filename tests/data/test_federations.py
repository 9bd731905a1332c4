"""Federations from names, tensors, data sets and per-client data."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from fedalpha import federation
from fedalpha.data import Examples, Generated


def tensors(n: int = 50) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(0)
    return torch.from_numpy(rng.normal(size=(n, 3))), torch.from_numpy(np.arange(n) % 5)


def rows(*parts: Examples) -> list[tuple[float, ...]]:
    return sorted(tuple(x.tolist()) for part in parts for x in part.x)


def test_every_sample_is_held_once() -> None:
    x, y = tensors()
    data = federation((x, y), partition="dirichlet(a=0.5)", clients=4, validation=0.2)
    assert data.validation is not None
    held = rows(*(data.client(i) for i in range(4)), data.validation, data.test)
    assert held == sorted(tuple(row) for row in x.to(torch.float32).tolist())
    assert data.sizes(np.arange(4)).tolist() == [len(data.client(i)) for i in range(4)]
    assert data.shape == (3,)
    assert data.classes == 5


def test_the_parts_set_aside_are_stratified() -> None:
    data = federation(tensors(), clients=2, validation=0.25)
    assert data.validation is not None
    assert np.bincount(data.test.y.numpy()).tolist() == [2] * 5
    assert np.bincount(data.validation.y.numpy()).tolist() == [2] * 5


def test_a_torch_dataset_gives_what_its_tensors_give() -> None:
    x, y = tensors()
    a = federation(TensorDataset(x, y), clients=3, seed=4)
    b = federation((x, y), clients=3, seed=4)
    for i in range(3):
        assert torch.equal(a.client(i).x, b.client(i).x)
        assert torch.equal(a.client(i).y, b.client(i).y)


def test_per_client_data_needs_no_partition_and_may_have_test_parts() -> None:
    x, y = tensors()
    parts = [(x[:10], y[:10]), (x[10:40], y[10:40])]
    whole = federation(parts, test=[(x[40:45], y[40:45]), (x[45:], y[45:])])
    assert [len(whole.client(i)) for i in range(2)] == [10, 30]
    assert whole.test_owner is not None
    assert whole.test_owner.tolist() == [0] * 5 + [1] * 5
    split = federation(parts)
    assert [len(split.client(i)) for i in range(2)] == [8, 24]
    assert split.test_owner is not None
    assert np.bincount(split.test_owner).tolist() == [2, 6]


def test_pixels() -> None:
    unit, raw, standard = (federation("digits", pixels=p) for p in ("unit", "raw", "standard"))
    assert unit.data.x.max() == 1
    assert raw.data.x.max() == 16
    assert abs(standard.data.x.mean()) < 0.05
    with pytest.raises(ValueError, match="unit, raw, standard"):
        federation("digits", pixels="bits")


def test_the_seed_decides_the_partition() -> None:
    a, b, c = (federation("digits", partition="shards(size=30)", clients=9, seed=s) for s in (1, 1, 2))
    assert torch.equal(a.client(3).x, b.client(3).x)
    assert not torch.equal(a.data.x, c.data.x)


def test_wrong_data_is_refused_with_a_reason() -> None:
    with pytest.raises(TypeError, match="a list with one"):
        federation(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one target per sample"):
        federation((torch.zeros(3, 2), torch.zeros(4)))
    with pytest.raises(ValueError, match="validation"):
        federation("digits", validation=1.5)
    with pytest.raises(ValueError, match="optima"):
        federation("digits", clients=3, optima=[0.0])


@pytest.mark.parametrize(
    ("data", "options", "said"),
    [
        ([], {}, "list of clients is empty"),
        ([*tensors()], {}, "pooled data are a tuple"),
        ([tensors(), (torch.zeros(0, 3), torch.zeros(0))], {}, "client 1 has no samples"),
        ([tensors(), tensors()], {"clients": 7}, "leave clients out"),
        ([tensors(), tensors()], {"test": [tensors()]}, "one part per client"),
        ((torch.zeros(4, 2), torch.tensor([-1, 0, 1, 1])), {}, "renumber"),
        ((torch.zeros(2, 2), ["cat", "dog"]), {}, "labels as 0, 1, 2"),
    ],
)
def test_inconsistent_data_are_named(data: object, options: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        federation(data, **options)  # type: ignore[arg-type]


def test_targets_may_be_vectors() -> None:
    x, _ = tensors()
    data = federation((x, x[:, :2].float()), clients=4)
    assert sum(len(data.client(i)) for i in range(4)) == 40
    assert data.classes == 2


def test_generated_clients_are_made_on_demand() -> None:
    made: list[int] = []

    def client(id: int) -> tuple[np.ndarray, np.ndarray]:
        made.append(id)
        return np.full((2, 3), id, dtype=np.float32), np.zeros(2, dtype=int)

    crowd = Generated(10**9, client, lambda ids: np.full(len(ids), 2), client(0), classes=2)
    made.clear()
    assert crowd.sizes(np.array([5, 10**8])).tolist() == [2, 2]
    assert made == []
    assert crowd.client(7).x.tolist() == [[7.0] * 3] * 2
