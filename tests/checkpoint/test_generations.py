"""Generations: what comes back, and that damage never goes unnoticed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedalpha.checkpoint import DamagedError, Generations
from fedalpha.checkpoint.tree import pack, unpack


def state(round: int) -> dict[str, Any]:
    rng = np.random.default_rng(round)
    return {
        "round": round,
        "w": torch.from_numpy(rng.normal(size=(8, 16)).astype(np.float32)),
        "seen": np.arange(round),
    }


def rows(round: int) -> list[dict[str, Any]]:
    return [{"round": r, "alpha": [0.5, 0.5]} for r in range(round + 1)]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Rounds 0 to 3 saved; generations 2 and 3 are kept."""
    generations = Generations(tmp_path / "checkpoint")
    for round in range(4):
        generations.save(round, state(round), rows(round))
    return tmp_path / "checkpoint"


def loaded_round(folder: Path) -> int:
    found = Generations(folder).load()
    assert found is not None
    tree, history, _ = found
    round = tree["round"]
    assert torch.equal(tree["w"], state(round)["w"])
    assert history == rows(round)
    return int(round)


def test_a_tree_comes_back_as_it_was() -> None:
    shared = torch.arange(4)
    tree = {
        "tensors": [shared, shared, torch.tensor(1.5, dtype=torch.bfloat16), torch.zeros(0, 3)],
        "arrays": (np.array(3), np.array([True]), np.arange(6).reshape(2, 3).T, np.float32(0.1), np.uint8(7)),
        3: {"nan": float("nan"), "inf": -float("inf"), "big": 2**80, "tenth": 0.1, "none": None, "yes": True},
        "empty": {},
    }
    back = unpack(*pack(tree))
    assert back.keys() == tree.keys()
    for one, other in zip(back["tensors"], tree["tensors"], strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    for one, other in zip(back["arrays"], tree["arrays"], strict=True):
        assert type(one) is type(other)
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert np.array_equal(one, other)
    assert str(back[3]) == str(tree[3])


@pytest.mark.parametrize("value", [object(), {1, 2}, np.array(["a"]), lambda: 0, b"bytes"])
def test_what_would_need_pickling_is_refused_with_its_place(value: object) -> None:
    with pytest.raises(TypeError, match=r"state\['weigh'\]\[1\]"):
        pack({"weigh": [0, value]})


def test_two_generations_are_kept(saved: Path) -> None:
    assert sorted(p.name for p in saved.iterdir()) == [
        "000002.json",
        "000002.safetensors",
        "000003.json",
        "000003.safetensors",
    ]
    assert loaded_round(saved) == 3


def test_truncation_anywhere_is_detected(saved: Path) -> None:
    for name in ("000003.safetensors", "000003.json"):
        whole = (saved / name).read_bytes()
        for length in [*range(0, len(whole), 512 if name.endswith("s") else 16), len(whole) - 1]:
            (saved / name).write_bytes(whole[:length])
            assert loaded_round(saved) == 2, (name, length)
        (saved / name).write_bytes(whole + b"\0")
        assert loaded_round(saved) == 2
        (saved / name).unlink()
        (saved / name).write_bytes(whole)
    assert loaded_round(saved) == 3


def test_a_thousand_bit_flips_are_detected(saved: Path) -> None:
    rng = np.random.default_rng(0)
    for name, flips in (("000003.safetensors", 700), ("000003.json", 300)):
        whole = (saved / name).read_bytes()
        for bit in rng.integers(0, 8 * len(whole), flips):
            flipped = bytearray(whole)
            flipped[bit // 8] ^= 1 << (bit % 8)
            (saved / name).write_bytes(flipped)
            assert loaded_round(saved) == 2, (name, bit)
        (saved / name).write_bytes(whole)


def test_a_missing_file_means_the_generation_before(saved: Path) -> None:
    (saved / "000003.safetensors").unlink()
    found = Generations(saved).load()
    assert found is not None
    assert found[0]["round"] == 2
    assert "round 3 is damaged" in found[2][0]


def test_two_damaged_generations_are_an_error_with_a_remedy(saved: Path) -> None:
    for path in saved.glob("*.safetensors"):
        path.write_bytes(b"")
    with pytest.raises(DamagedError, match=r"Remove .* to start again from round 0"):
        Generations(saved).load()


def test_nothing_saved_is_not_an_error(tmp_path: Path) -> None:
    assert Generations(tmp_path / "none").load() is None


def test_a_damaged_newer_generation_does_not_push_out_a_whole_one(saved: Path, tmp_path: Path) -> None:
    """Saved at rounds 2 and 6; 6 is damaged; the run goes on from 2 and is stopped at 3: both are kept."""
    shutil.copy(saved / "000003.json", saved / "000006.json")
    generations = Generations(saved)
    (saved / "000003.json").unlink()
    assert generations.load() is not None
    generations.save(3, state(3), rows(3))
    assert loaded_round(saved) == 3
    (saved / "000003.json").unlink()
    assert loaded_round(saved) == 2
