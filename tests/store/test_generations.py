"""Generations: what comes back, and that damage never goes unnoticed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedalpha.store import DamagedError, FormatError, Generations
from fedalpha.store.tree import pack, unpack


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


def test_an_array_that_is_named_twice_is_refused() -> None:
    """A few megabytes of names would stand for gigabytes of the same array."""
    text, arrays = pack({"w": np.arange(3), "v": torch.zeros(2), "n": np.float64(1)})
    for name in arrays:
        twice = json.dumps({"list": [json.loads(text), {"array": name}]})
        with pytest.raises(KeyError, match=name):
            unpack(twice, arrays)
    assert len(arrays) == 3


def test_a_tree_comes_back_as_it_was() -> None:
    shared = torch.arange(4)
    tree = {
        "tensors": [shared, shared, torch.tensor(1.5, dtype=torch.bfloat16), torch.zeros(0, 3)],
        "small": [torch.arange(6).view(2, 3).T.to(dtype) for dtype in (torch.bfloat16, torch.float8_e4m3fn)],
        "part": torch.arange(9.0)[3:6].requires_grad_(),
        "arrays": (np.array(3), np.array([True]), np.arange(6).reshape(2, 3).T, np.float32(0.1), np.uint8(7)),
        "swapped": np.arange(3, dtype=">i4"),
        3: {"nan": float("nan"), "inf": -float("inf"), "big": 2**80, "tenth": 0.1, "none": None, "yes": True},
        "empty": {},
    }
    back = unpack(*pack(tree))
    assert back.keys() == tree.keys()
    tensors = [*tree["tensors"], *tree["small"], tree["part"]]
    for one, other in zip([*back["tensors"], *back["small"], back["part"]], tensors, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one.double(), other.double())
    for one, other in zip(back["arrays"], tree["arrays"], strict=True):
        assert type(one) is type(other)
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert np.array_equal(one, other)
    assert back["swapped"].tolist() == [0, 1, 2]
    assert str(back[3]) == str(tree[3])


def test_arrays_are_not_copied() -> None:
    array, tensor = np.arange(3), torch.arange(3)
    _, arrays = pack([array, tensor])
    assert np.shares_memory(arrays["000000"], array)
    assert np.shares_memory(arrays["000001"], tensor.numpy())


@pytest.mark.parametrize("value", [object(), {1, 2}, np.array(["a"]), torch.zeros(2, dtype=torch.complex64), b"bytes"])
def test_what_would_need_pickling_is_refused_with_its_place(value: object) -> None:
    with pytest.raises(TypeError, match=r"state\['weigh'\]\[1\]"):
        pack({"weigh": [0, value]})


def test_two_generations_are_kept(saved: Path) -> None:
    assert sorted(p.name for p in saved.iterdir()) == [
        "000002.json",
        "000002.safetensors",
        "000003.json",
        "000003.safetensors",
        "even.rows",
        "odd.rows",
    ]
    assert loaded_round(saved) == 3


def test_truncation_anywhere_is_detected(saved: Path) -> None:
    for name in ("000003.safetensors", "000003.json", "odd.rows"):
        whole = (saved / name).read_bytes()
        for length in [*range(0, len(whole), 512 if name.endswith("s") else 16), len(whole) - 1]:
            (saved / name).write_bytes(whole[:length])
            assert loaded_round(saved) == 2, (name, length)
        (saved / name).write_bytes(whole + b"\0")
        assert loaded_round(saved) == (3 if name == "odd.rows" else 2)  # a rows file may have grown
        (saved / name).unlink()
        (saved / name).write_bytes(whole)
    assert loaded_round(saved) == 3


def test_a_thousand_bit_flips_are_detected(saved: Path) -> None:
    rng = np.random.default_rng(0)
    for name, flips in (("000003.safetensors", 500), ("000003.json", 300), ("odd.rows", 200)):
        whole = (saved / name).read_bytes()
        for bit in rng.integers(0, 8 * len(whole), flips):
            flipped = bytearray(whole)
            flipped[bit // 8] ^= 1 << (bit % 8)
            (saved / name).write_bytes(flipped)
            assert loaded_round(saved) == 2, (name, bit)
        (saved / name).write_bytes(whole)


def test_a_missing_file_means_the_generation_before(saved: Path) -> None:
    for name in ("000003.safetensors", "odd.rows"):
        (saved / name).unlink()
        found = Generations(saved).load()
        assert found is not None
        assert found[0]["round"] == 2
        assert "000003.json is damaged" in found[2][0]


def test_two_damaged_generations_are_an_error_with_a_remedy(saved: Path) -> None:
    for path in saved.glob("*.safetensors"):
        path.write_bytes(b"")
    with pytest.raises(DamagedError, match=r"Remove .* to start again from round 0"):
        Generations(saved).load()


def test_any_number_of_damaged_generations_is_a_short_error(saved: Path) -> None:
    for number in range(1_000):
        (saved / f"{number:06d}.json").write_text("x")
    with pytest.raises(DamagedError, match="997 more are damaged") as error:
        Generations(saved).load()
    assert len(str(error.value)) < 2_000


def test_nothing_saved_is_not_an_error(tmp_path: Path) -> None:
    assert Generations(tmp_path / "none").load() is None


def test_a_damaged_newer_generation_does_not_push_out_a_whole_one(saved: Path) -> None:
    """The newest is damaged, the run goes on from the one before and saves: that one is still there afterwards."""
    for _ in range(2):
        (saved / "000003.safetensors").write_bytes(b"")
        generations = Generations(saved)
        assert generations.load() is not None
        generations.save(3, state(3), rows(3))
        assert loaded_round(saved) == 3
    (saved / "odd.rows").write_bytes(b"")
    assert loaded_round(saved) == 2


def test_a_failed_save_leaves_the_generation_before(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every write of a save fails once, after half of its bytes, and the same object saves again."""
    generations = Generations(saved)
    generations.load()
    real = os.write
    for place in range(3):  # rows, state, manifest
        writes = []

        def failing(descriptor: int, content: bytes, place: int = place, writes: list[int] = writes) -> int:
            writes.append(len(content))
            if len(writes) == place + 1:
                real(descriptor, content[: len(content) // 2])
                raise OSError("full")
            return real(descriptor, content)

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", failing)
            with pytest.raises(OSError, match="full"):
                generations.save(4 + place, state(4 + place), rows(4 + place))
        assert loaded_round(saved) == 3 + place
        generations.save(4 + place, state(4 + place), rows(4 + place))
        assert loaded_round(saved) == 4 + place


def test_the_last_row_may_change_and_a_round_may_be_saved_again(tmp_path: Path) -> None:
    generations, history = Generations(tmp_path), rows(0)
    for round in range(1, 5):
        history.append({"round": round})
        generations.save(round, state(round), history)
        history[-1]["accuracy"] = round / 10
        generations.save(round, state(round), history)
        found = Generations(tmp_path).load()
        assert found is not None
        assert found[1] == history
    (tmp_path / "000007.json").unlink()  # the one before is the same round, before it was evaluated
    found = Generations(tmp_path).load()
    assert found is not None
    assert found[1] == [*history[:-1], {"round": 4}]


def test_a_save_writes_the_new_rows_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = [0]
    real = os.write

    def counted(descriptor: int, content: bytes) -> int:
        written[0] += len(content)
        return real(descriptor, content)

    monkeypatch.setattr(os, "write", counted)
    history = [{"round": r, "alpha": np.random.default_rng(r).random(10).tolist()} for r in range(20_004)]

    def cost(generations: Generations, round: int) -> int:
        before = written[0]
        generations.save(round, {"w": np.zeros(100)}, history[:round])
        return written[0] - before

    generations = Generations(tmp_path / "a")
    few = [cost(generations, round) for round in range(10, 14)]
    many = [cost(generations, round) for round in range(20_000, 20_004)]
    assert min(many[:2]) > 100 * max(few)  # each of the two files gets nearly all rows once
    assert max(many[2:]) < 1.1 * max(few[2:])
    resumed = Generations(tmp_path / "a")
    found = resumed.load()
    assert found is not None
    assert found[1] == history[:20_003]
    again = [cost(resumed, round) for round in (20_003, 20_004)]
    assert again[1] < 1.1 * max(few[2:])


def test_another_format_is_refused_by_name(saved: Path) -> None:
    for path in saved.glob("*.json"):
        facts = json.loads(path.read_text())
        facts = {**facts, "format": 1}
        del facts["sha256"]
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
        path.write_text(json.dumps({**facts, "sha256": digest}, indent=2) + "\n")
    with pytest.raises(FormatError, match=r"000003\.json is of format 1, and this version of fedalpha reads format 2"):
        Generations(saved).load()


def test_torch_is_not_needed(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; sys.modules['torch'] = None\n"
        "import numpy as np\n"
        "from fedalpha.store import Generations\n"
        "Generations(pathlib.Path(sys.argv[1])).save(1, {'w': np.arange(3)}, [{'round': 1}])\n"
        "print(Generations(pathlib.Path(sys.argv[1])).load())"
    )
    found = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert found.stdout == "({'w': array([0, 1, 2])}, [{'round': 1}], [])\n"
