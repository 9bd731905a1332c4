"""`federation`: what is set aside and who gets what."""

from __future__ import annotations

import numpy as np
import torch

from fedalpha import federation
from fedalpha.data import Examples


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


def test_the_seed_decides_the_partition() -> None:
    a, b, c = (federation("digits", partition="shards(size=30)", clients=9, seed=s) for s in (1, 1, 2))
    assert torch.equal(a.client(3).x, b.client(3).x)
    assert not torch.equal(a.data.x, c.data.x)


def test_targets_may_be_vectors() -> None:
    x, _ = tensors()
    data = federation((x, x[:, :2].float()), clients=4)
    assert sum(len(data.client(i)) for i in range(4)) == 40
    assert data.classes == 2


def test_a_client_must_keep_a_sample() -> None:
    one = (torch.zeros(1, 3), torch.zeros(1, dtype=torch.int64))
    assert len(federation([tensors(), one], validation=0.9).client(1)) == 1


def test_what_it_is_made_of_is_described() -> None:
    common = {"clients": 3, "partition": "iid", "seed": 1, "validation": 0.0}
    named = federation("digits", clients=3, seed=1).description
    assert list(named.items()) == list(({"dataset": "digits", "pixels": "unit"} | common).items())
    assert federation(tensors(), clients=3, seed=1).description == common
    given = {"clients": 2, "partition": "given", "seed": 0, "validation": 0.0}
    assert federation([tensors(), tensors()]).description == given
    made = federation("synthetic(a=1, b=1)", clients=2).description
    assert list(made.items()) == list((given | {"dataset": "synthetic(a=1, b=1)"}).items())
