"""The folder of ``save``: whole generations, and one run in it. Whole runs that go on are in test_strategy.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedalpha.flower.saved import Saved, digest

IDENTITY = {"strategy": "FedAvg", "seed": 0}


def store(folder: Path, **values: Any) -> None:
    Saved(folder).write({"identity": IDENTITY, "begun": digest({"w": np.zeros(2)}), **values})


def test_a_damaged_generation_does_not_replace_a_whole_one(tmp_path: Path) -> None:
    def damage() -> None:
        (tmp_path / "server.safetensors").write_bytes(b"nothing")

    Saved(tmp_path).write({"round": 1})
    Saved(tmp_path).write({"round": 2})
    for _ in range(2):
        damage()
        saved = Saved(tmp_path)
        assert saved.read() == {"round": 1}
        saved.write({"round": 2})
    saved.write({"round": 3})
    damage()
    assert Saved(tmp_path).read() == {"round": 2}


def test_the_state_of_this_run_comes_back_and_the_folder_is_held(tmp_path: Path) -> None:
    store(tmp_path, round=3, state={"w": np.arange(2.0), 7: [None, True]})
    saved = Saved(tmp_path)
    tree = saved.go_on(IDENTITY, digest({"w": np.zeros(2)}))
    assert tree is not None
    assert tree["round"] == 3
    assert tree["state"]["w"].tolist() == [0.0, 1.0]
    assert tree["state"][7] == [None, True]
    with pytest.raises(RuntimeError, match="in use by this process"):
        Saved(tmp_path).hold()
    saved.release()


def test_a_refused_run_gives_the_folder_back(tmp_path: Path) -> None:
    store(tmp_path)
    with pytest.raises(ValueError, match="seed is 0 there and 1 here; clients is not set there and 5 here"):
        Saved(tmp_path).go_on({**IDENTITY, "seed": 1, "clients": 5}, "")
    saved = Saved(tmp_path)
    saved.hold()
    saved.release()


def test_an_empty_folder_is_a_new_run(tmp_path: Path) -> None:
    saved = Saved(tmp_path / "new")
    assert saved.go_on(IDENTITY, "") is None
    saved.release()


def test_what_cannot_be_stored_is_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"state/over/lock is a object, which cannot be saved"):
        Saved(tmp_path).write({"over": {"lock": object()}})
    assert not list(tmp_path.iterdir())
