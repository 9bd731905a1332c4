"""Smartwatch exercises by person."""

from __future__ import annotations

import io
import pickle

import numpy as np
import pytest

import fedalpha
from fedalpha.data.sets.watch import _Arrays, watch
from fetched import real


def test_arrays_are_read_as_numpy_reads_them_and_nothing_else_is_run() -> None:
    data = {"X": [np.arange(6.0).reshape(3, 2)], "y": np.arange(3)}
    content = pickle.dumps(data, protocol=2).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    found = _Arrays(io.BytesIO(content)).load()
    assert (found["X"][0] == data["X"][0]).all()
    assert (found["y"] == data["y"]).all()

    class Evil:
        def __reduce__(self):
            return (print, ("code of the file was run",))

    with pytest.raises(pickle.UnpicklingError, match=r"builtins.print is not part of an array"):
        _Arrays(io.BytesIO(pickle.dumps(Evil(), protocol=2).replace(b"__builtin__", b"builtins"))).load()


@pytest.fixture(scope="module")
def made() -> fedalpha.data.Pooled:
    real(watch().files)
    return fedalpha.federation("watch")


def test_a_client_is_an_arm_and_every_one_does_every_exercise(made: fedalpha.data.Pooled) -> None:
    assert (made.clients, made.shape, made.classes) == (20, (6, 100), 7)
    assert made.names is not None
    assert made.names[0] == "person 1, left arm"
    for i in range(20):
        assert len(np.unique(made.client(i).y)) == 7
        assert len(np.unique(made.test.y[made.test_owner == i])) == 7
    assert made.data.x.mean().abs() < 0.05


def test_people_differ_and_a_model_learns_from_them(made: fedalpha.data.Pooled) -> None:
    history = fedalpha.run(made, "mlp", rounds=15, update="sgd(lr=0.05)", engine="embedded(workers=1)")
    assert history.accuracy[-1] > 0.6
    assert len(history.rows[-1]["client_accuracy"]) == 20
    assert history.rows[-1]["worst_client_accuracy"] < history.accuracy[-1]


def test_refused_lengths_and_too_many_clients() -> None:
    with pytest.raises(ValueError, match="from 2 to 200"):
        watch(length=1000)
    real(watch().files)
    with pytest.raises(ValueError, match="watch has 20 clients, not 21; give clients = 1 to 20"):
        fedalpha.federation("watch", clients=21)
