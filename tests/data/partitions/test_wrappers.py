"""Feature shift, label noise, and both skews at once: properties over random data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedalpha
from fedalpha.data import PARTITIONS
from fedalpha.data.partitions.noisy import noisy
from fedalpha.data.partitions.quantity import quantity
from fedalpha.data.partitions.rotated import rotated
from fedalpha.data.partitions.skewed import skewed
from fedalpha.data.partitions.wrapper import Holding
from fedalpha.rng import generator

labels = st.lists(st.integers(0, 5), min_size=1, max_size=120).map(np.array)


def holding(y: np.ndarray, client: int = 0, clients: int = 4, seed: int = 0, test: bool = False) -> Holding:
    x = np.arange(len(y) * 9).reshape(len(y), 1, 3, 3)
    return Holding(x, y, client, clients, classes=6, seed=seed, test=test)


@given(
    y=labels,
    share=st.floats(0, 1),
    clients=st.one_of(st.integers(0, 8), st.floats(0, 1)),
    seed=st.integers(0, 2**32),
)
def test_noise_changes_exactly_its_share_at_exactly_its_clients(y, share, clients, seed) -> None:
    wrong = [noisy(share=share, clients=clients).change(holding(y, i, 8, seed)) for i in range(8)]
    changed = [int((one.y != y).sum()) for one in wrong]
    loud = clients if isinstance(clients, int) else round(clients * 8)
    assert sorted(changed) == sorted([round(share * len(y))] * loud + [0] * (8 - loud))
    assert all(((one.y >= 0) & (one.y < 6)).all() and (one.x == wrong[0].x).all() for one in wrong)
    assert (noisy(share=share).change(holding(y, 0, 8, seed, test=True)).y == y).all()
    again = noisy(share=share, clients=clients).change(holding(y, 0, 8, seed))
    assert (again.y == wrong[0].y).all()


@given(client=st.integers(0, 50), by=st.sampled_from([90, 180, 45, 120]), seed=st.integers(0, 9))
def test_turns_come_round_and_keep_labels(client, by, seed) -> None:
    random = generator(seed, "pictures")
    x, y = random.random((3, 2, 5, 5), dtype=np.float32), np.arange(3)
    turned = rotated(by=by).change(Holding(x, y, client, 51, 3, seed))
    assert (turned.y == y).all()
    assert turned.x.shape == x.shape
    assert turned.x.dtype == x.dtype
    if client % (360 // by) == 0:
        assert (turned.x == x).all()
    if (by * client) % 90 == 0:
        assert sorted(turned.x.ravel()) == sorted(x.ravel())
        expected = np.stack([[np.rot90(channel, by * client // 90) for channel in picture] for picture in x])
        assert (turned.x == expected).all()


@given(y=labels, clients=st.integers(1, 20), a=st.sampled_from([0.05, 1.0, 1e6]), seed=st.integers(0, 2**32))
def test_both_skews_have_the_sizes_of_quantity(y, clients, a, seed) -> None:
    if len(y) < clients:
        return
    parts = skewed(sizes=a, labels=0.3).split(y, clients, generator(seed, "partition"))
    sizes = quantity(a=a).split(y, clients, generator(seed, "partition"))
    assert [len(part) for part in parts] == [len(part) for part in sizes]
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(y)))


def test_a_small_concentration_skews_labels_and_a_large_one_does_not() -> None:
    y = np.arange(4000) % 10

    def kinds(a: float) -> float:
        parts = skewed(sizes=100.0, labels=a).split(y, 20, generator(0, "partition"))
        return float(np.mean([np.bincount(y[part], minlength=10).max() / len(part) for part in parts]))

    assert kinds(1e6) < 0.12
    assert kinds(0.05) > 0.6


def test_regimes_combine_and_reach_the_clients_but_not_the_servers_test_set() -> None:
    plain = fedalpha.federation("digits", partition="dirichlet(a=0.5)", clients=6)
    mixed = fedalpha.federation("digits", partition="noisy(rotated(dirichlet(a=0.5)), share=0.5, clients=2)", clients=6)
    assert (mixed.test.x == plain.test.x).all()
    wrong = [int((mixed.client(i).y != plain.client(i).y).sum()) for i in range(6)]
    assert sum(count > 0 for count in wrong) == 2
    assert sum(wrong) == sum(round(0.5 * len(plain.client(i))) for i in range(6) if wrong[i])
    for i in range(6):
        assert (mixed.client(i).x == plain.client(i).x.rot90(i % 4, (2, 3))).all()
    assert mixed.description["partition"] == "noisy(rotated(dirichlet), share=0.5, clients=2)"


def test_clients_own_test_parts_are_turned_with_them() -> None:
    rng = np.random.default_rng(0)
    parts = [(rng.random((10, 1, 4, 4), dtype=np.float32), np.arange(10) % 3) for _ in range(3)]
    plain = fedalpha.federation(parts)
    turned = fedalpha.federation(parts, partition="noisy(rotated(iid), share=1.0)")
    for i in range(3):
        mine = plain.test_owner == i
        assert (turned.test.x[mine] == plain.test.x[mine].rot90(i, (2, 3))).all()
    assert (turned.test.y == plain.test.y).all()
    assert (turned.data.y != plain.data.y).all()
    assert turned.description["partition"] == "noisy(rotated(iid), share=1.0)"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rotated(iid, by=77)", "divides 360"),
        ("noisy(iid, share=2)", r"\[0, 1\]"),
        ("noisy(iid, share=0.1, clients=1.5)", "at most 1.0"),
        ("noisy(idd, share=0.1)", "unknown partition 'idd'|did you mean 'iid'"),
        ("skewed(labels=0)", "labels = 0; give a concentration"),
    ],
)
def test_nonsense_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        PARTITIONS.parse(text)


def test_data_that_cannot_be_turned_or_have_no_labels_are_refused() -> None:
    x = np.zeros((20, 3), dtype=np.float32)
    with pytest.raises(ValueError, match="square pictures"):
        fedalpha.federation((x, np.arange(20) % 2), partition="rotated(iid)", clients=2)
    with pytest.raises(ValueError, match="one label per sample"):
        fedalpha.federation((x, x), partition="noisy(iid, share=0.1)", clients=2)
