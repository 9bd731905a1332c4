"""What `federation` accepts: names, tensors, data sets and per-client data; what it refuses, and why."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from fedalpha import federation
from fedalpha.data import Natural, Partitioned, Samples
from fedalpha.data.sets.digits import digits


def tensors(n: int = 50) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(0)
    return torch.from_numpy(rng.normal(size=(n, 3))), torch.from_numpy(np.arange(n) % 5)


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
        ((torch.zeros(2, 2), [None, None]), {}, "not a number or a word"),
    ],
)
def test_inconsistent_data_are_named(data: object, options: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        federation(data, **options)  # type: ignore[arg-type]


class wards(Natural):  # noqa: N801 - as a data set is written
    """Clients with test parts of their own."""

    shape = (3,)
    class_names = tuple("01234")

    def make(self, clients: int, seed: int) -> list[Samples]:
        x, y = (part.numpy() for part in tensors())
        return [Samples(x[k : k + 20], y[k : k + 20], x[40 : 41 + k], y[40 : 41 + k]) for k in range(clients)]


class pool(Partitioned):  # noqa: N801
    """A pool without a test part."""

    shape = (3,)
    class_names = tuple("01234")

    def load(self) -> Samples:
        x, y = tensors()
        return Samples(x.numpy(), y.numpy())


def test_a_natural_data_set_may_bring_test_parts() -> None:
    data = federation(wards(), clients=3)
    assert [len(data.client(i)) for i in range(3)] == [20] * 3
    assert data.test_owner is not None
    assert data.test_owner.tolist() == [0, 1, 1, 2, 2, 2]
    assert data.description["dataset"] == "wards"


def test_of_a_pool_without_a_test_part_a_fifth_is_set_aside() -> None:
    data = federation(pool(), clients=2)
    assert (len(data.test), len(data.data)) == (10, 40)


def test_a_data_set_is_as_good_as_its_name() -> None:
    assert federation(digits()).digest() == federation("digits").digest()
