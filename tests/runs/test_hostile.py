"""Run folders that somebody else made: attacks that reached files, memory or a traceback."""

from __future__ import annotations

import json
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedalpha
from fedalpha.analysis.history import read
from fedalpha.data import Pooled
from fedalpha.runs.loggers import LOGGERS
from fedalpha.store import Generations, LinkError, Most
from fedalpha.store.generations import _packed, _signed
from fedalpha.store.tree import pack

ENGINE = "embedded(workers=1)"


@pytest.fixture
def played(digits: Pooled, tmp_path: Path) -> Path:
    fedalpha.run(digits, "softmax", rounds=2, engine=ENGINE, out=tmp_path / "a")
    return tmp_path / "a"


def again(digits: Pooled, folder: Path) -> Any:
    return fedalpha.run(digits, "softmax", rounds=2, engine=ENGINE, out=folder)


@pytest.mark.parametrize("name", ["lock", "checkpoint", "config.json"])
def test_links_in_a_run_folder_are_refused(digits: Pooled, played: Path, name: str) -> None:
    victim = played.with_name("precious")
    if (played / name).is_dir():
        (played / name).rename(victim)
    else:
        victim.write_text((played / name).read_text())
        (played / name).unlink()
    (played / name).symlink_to(victim)
    before = sorted(victim.iterdir()) if victim.is_dir() else victim.read_text()
    (played / "model.safetensors").unlink()  # so that there is something to do
    with pytest.raises(LinkError, match=f"{name} is a link"):
        again(digits, played)
    assert before == (sorted(victim.iterdir()) if victim.is_dir() else victim.read_text())


@pytest.mark.parametrize("name", ["history.jsonl", "model.safetensors", "curves.png", "checkpoint/finished"])
def test_links_in_the_place_of_results_are_replaced(digits: Pooled, played: Path, name: str) -> None:
    victim = played.with_name("precious")
    victim.write_text("mine")
    (played / name).unlink()
    (played / name).symlink_to(victim)
    (played / "checkpoint" / "finished").unlink()
    again(digits, played)
    assert victim.read_text() == "mine"
    assert not (played / name).is_symlink()


def test_a_damaged_history_is_named_and_written_again(digits: Pooled, played: Path) -> None:
    whole = (played / "history.jsonl").read_bytes()
    for damage in (b"{", b"[]\n" + whole, b"[" * 100_000):
        (played / "history.jsonl").write_bytes(damage)
        with pytest.raises(ValueError, match=r"history.jsonl is damaged: line 1 is not a row; `fedalpha resume"):
            read(played)
        again(digits, played)
        assert (played / "history.jsonl").read_bytes() == whole


def forge(folder: Path, tree: str, rows: list[bytes], number: int = 3) -> None:
    """A generation with valid checksums, newer than the real ones."""
    from safetensors.numpy import save

    from fedalpha.store.generations import FORMAT, _facts

    data = save({"tree": np.frombuffer(tree.encode(), dtype=np.uint8), "000000": np.zeros(1)})
    lines = folder / ("odd.rows" if number % 2 else "even.rows")
    lines.write_bytes(b"".join(rows))
    (folder / f"{number:06d}.safetensors").write_bytes(data)
    files = {f"{number:06d}.safetensors": _facts(data), lines.name: _facts(lines.read_bytes())}
    manifest = {"format": FORMAT, "number": number, "round": 2, "files": files}
    (folder / f"{number:06d}.json").write_bytes(_signed(manifest))


ROWS = [_packed({"round": r}) for r in range(3)]
FORGERIES: dict[str, Callable[[], tuple[str, list[bytes]]]] = {
    "no such key": lambda: (pack({"round": 2})[0], ROWS),
    "another kind": lambda: (pack([1, 2])[0], ROWS),
    "nested": lambda: ("[" * 200_000, ROWS),
    "unknown array": lambda: ('{"array": "000009"}', ROWS),
    "unknown dtype": lambda: ('{"tensor": ["000000", "Tensor"]}', ROWS),
    "no rows": lambda: (pack({})[0], []),
    "rows of another kind": lambda: (pack({})[0], [_packed([1])]),  # type: ignore[arg-type]
    "a length beyond the end": lambda: (pack({})[0], [b"\xff\xff\xff\x7f"]),
}


@pytest.mark.parametrize("kind", FORGERIES)
def test_a_forged_checkpoint_falls_back(
    digits: Pooled, played: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    whole = (played / "model.safetensors").read_bytes()
    forge(played / "checkpoint", *FORGERIES[kind]())
    (played / "model.safetensors").unlink()
    (played / "checkpoint" / "².json").touch()
    again(digits, played)
    assert "000003.json is damaged" in caplog.text
    assert max(len(record.getMessage()) for record in caplog.records) < 1_000
    assert (played / "model.safetensors").read_bytes() == whole


def test_a_small_checkpoint_cannot_take_all_memory(tmp_path: Path) -> None:
    """A few kilobytes of compressed rows stand for a hundred megabytes; they are refused before they are unpacked."""
    bomb = zlib.compress(b'{"round": 0, "x": [' + b"0," * 10_000_000 + b"0]}", 9)
    record = len(bomb).to_bytes(4, "little") + bomb
    forge(tmp_path, pack({})[0], [record] * 5)
    for most, reason in (
        (Most(), "a row has more than"),
        (Most(row=2**20), "1,048,576 bytes"),
        (Most(rows=3), "5 rows"),
    ):
        tracemalloc.start()
        with pytest.raises(RuntimeError, match=reason):
            Generations(tmp_path).load(most)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 64 * 2**20


def test_a_logger_does_not_write_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "rounds.csv").symlink_to(tmp_path / "precious")
    with pytest.raises(LinkError, match="is a link"):
        LOGGERS.parse(f"csv({str(tmp_path / 'rounds.csv')!r})").on_start(1)
    with pytest.raises(LinkError, match="is a link"):
        LOGGERS.parse(f"jsonlog({str(tmp_path / 'rounds.csv')!r})").on_start(1)
    assert (tmp_path / "precious").read_text() == "mine"


def test_errors_are_short(tmp_path: Path) -> None:
    from fedalpha.runs.reading import read_settings

    for content in ({"strategy": "x" * 10**7}, {"x" * 10**6: 1}, {"clients": "y" * 10**6}, {"dataset": ["z"] * 10**6}):
        (tmp_path / "config.json").write_text(json.dumps(content))
        with pytest.raises(ValueError, match="…") as error:
            read_settings(tmp_path / "config.json", {}).resolved()
        assert len(str(error.value)) < 3_000
