"""The embedded engine: what it keeps in files, and how large models are summed."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedalpha
from fedalpha.data import Pooled
from fedalpha.engine.backends import embedded as backend
from fedalpha.engine.backends.embedded import _file, _given_back
from fedalpha.engine.backends.pool import Pool
from histories import same_model, without_times


def test_updates_in_files_change_no_byte_and_leave_nothing_behind(
    digits: Pooled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    taken: list[int] = []
    real = backend._file
    monkeypatch.setattr(backend, "_file", lambda nbytes: taken.append(nbytes) or real(nbytes))
    same: dict[str, Any] = {"rounds": 2, "combine": "trimmed(beta=0.2)"}
    expected = fedalpha.run(digits, "mlp(hidden=[8])", **same, engine="embedded(workers=1)")
    for workers in (1, 2):
        taken.clear()
        found = fedalpha.run(digits, "mlp(hidden=[8])", **same, engine=f"embedded(workers={workers}, updates=mapped)")
        assert without_times(found) == without_times(expected)
        assert same_model(found, expected)
        assert len(taken) >= digits.clients
    assert os.listdir(tmp_path) == []


def test_a_mapped_update_takes_its_space_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    memory = _file(1 << 16)
    memory[:3] = b"abc"
    assert bytes(memory[:4]) == b"abc\0"
    with pytest.raises(RuntimeError, match="set TMPDIR"):
        _file(1 << 60)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(RuntimeError, match="updates=mapped"):
        _file(1 << 16)


def test_another_word_for_updates_is_refused() -> None:
    with pytest.raises(ValueError, match="give memory or mapped"):
        fedalpha.engine.ENGINES.parse("embedded(updates=disk)")


def test_with_one_place_results_come_in_order_and_wait_for_their_turn() -> None:
    """A worker that is too early keeps what it has written until the results before it are taken."""
    place = torch.zeros(2, dtype=torch.float64).share_memory_()

    def work(where: int, task: int) -> int:
        time.sleep(0.05 if task % 3 == 0 else 0.0)
        place[where] = task
        return task

    pool = Pool(2, work, places=1)
    try:
        seen = [(index, value, float(place[where])) for index, where, value in pool.map(range(9), ordered=True)]
    finally:
        pool.close()
    assert seen == [(i, i, float(i)) for i in range(9)]


@pytest.mark.parametrize("combine", ["mean", "clip(mean, C=0.1)"])
def test_large_models_have_the_same_bytes_with_workers(
    digits: Pooled, combine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "_LARGE", 1)
    runs = [
        fedalpha.run(digits, "mlp(hidden=[8])", rounds=2, combine=combine, engine=f"embedded(workers={workers})")
        for workers in (1, 2)
    ]
    assert same_model(*runs)
    assert np.isfinite(runs[0].rows[-1]["loss"])


def test_forked_workers_do_not_inherit_the_first_model() -> None:
    """Its memory is free meanwhile, then filled again. Tensors that share memory with others or NumPy keep theirs."""
    own, tied, seen, empty = torch.randn(3, 4), torch.randn(6), torch.randn(5), torch.zeros(0)
    array = seen.numpy()
    values = {
        "own": own,
        "left": tied[:3],
        "right": tied[3:],
        "seen": seen,
        "turned": torch.randn(2, 3).T,
        "empty": empty,
    }
    copy = {name: value.clone() for name, value in values.items()}
    kept = {name: value.data_ptr() for name, value in values.items() if name in ("left", "right", "seen")}

    def fork() -> None:
        assert own.untyped_storage().nbytes() == values["turned"].untyped_storage().nbytes() == 0
        assert {name: values[name].data_ptr() for name in kept} == kept
        raise OSError("no more processes")

    with pytest.raises(OSError, match="no more processes"), _given_back(values, copy):
        fork()
    assert all(torch.equal(value, copy[name]) for name, value in values.items())
    assert array.tolist() == copy["seen"].tolist()
