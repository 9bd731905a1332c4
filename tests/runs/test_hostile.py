"""Run folders that somebody else made: attacks that reached files, memory or a traceback."""

from __future__ import annotations

import json
import time
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedalpha
from fedalpha.analysis.conditions import condition
from fedalpha.analysis.history import read
from fedalpha.data import Pooled
from fedalpha.report.pages import filled
from fedalpha.runs.loggers import LOGGERS
from fedalpha.runs.reading import read_settings
from fedalpha.store import Generations, LinkError, Most
from fedalpha.store.generations import _packed, _signed
from fedalpha.store.tree import pack
from fedalpha.study import read_study

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


@pytest.mark.parametrize("row", ['"accuracy": "x"', f'"loss": {10**400}', '"steps": [1]'])
def test_a_row_whose_numbers_are_none_is_not_shown(digits: Pooled, played: Path, row: str) -> None:
    whole = (played / "history.jsonl").read_bytes()
    (played / "history.jsonl").write_text(f'{{"round": 0, {row}}}\n')
    with pytest.raises(ValueError, match=r"history.jsonl is damaged: the [a-z]+ of a row is not a number"):
        read(played)
    again(digits, played)
    assert (played / "history.jsonl").read_bytes() == whole


def test_a_finished_run_with_forged_rows_is_a_short_error(played: Path) -> None:
    """Rows without accuracy, and shadow rules without weights: numbers that only the command line shows."""
    from fedalpha.analysis.shadows import shadow_summaries
    from fedalpha.cli.run import result

    (played / "history.jsonl").write_text('{"round": 0, "shadow": {"FedAvg": {"distance": "x"}}}\n')
    history = read(played)
    assert "accuracy –, loss –" in result(history)
    with pytest.raises(ValueError, match="shadow rules are not those of a run"):
        shadow_summaries(history.rows)


def test_a_model_of_a_dtype_that_torch_lacks_is_damaged(played: Path) -> None:
    header = json.dumps({"a": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}).encode()
    (played / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0")
    with pytest.raises(ValueError, match=r"model.safetensors is damaged"):
        read(played)


def test_keys_of_many_parts_are_refused(tmp_path: Path) -> None:
    """tomllib would take memory that grows with the square of their number."""
    for text in ("a." * 20_000 + "b = 1", "[" + "'a' . " * 20_000 + "b]"):
        (tmp_path / "given.toml").write_text(text)
        tracemalloc.start()
        for reader in (lambda file: read_settings(file, {}), read_study):
            with pytest.raises(ValueError, match="a key has more than 32 parts"):
                reader(tmp_path / "given.toml")
        assert tracemalloc.get_traced_memory()[1] < 2**26
        tracemalloc.stop()


def test_texts_are_read_in_time_that_grows_with_their_length(tmp_path: Path) -> None:
    before = time.process_time()
    for text in ("accuracy" + 90_000 * " " + "x", "accuracy >= 0.5 or " * 10**6):
        with pytest.raises(ValueError, match="condition"):
            condition(text)
    with pytest.raises(ValueError, match="no table marks"):
        filled("<!-- fedalpha x: accuracy -->\n" * 30_000, tmp_path)
    assert time.process_time() - before < 10  # with the square of it: minutes


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


def test_a_file_of_holes_does_not_fill_the_memory(digits: Pooled, played: Path) -> None:
    """An archive can hold a file of terabytes in a few bytes: nothing but holes."""
    for name in ("history.jsonl", "model.safetensors", "checkpoint/000002.safetensors", "checkpoint/even.rows"):
        with (played / name).open("r+b") as file:
            file.truncate(2**42)
    with pytest.raises(ValueError, match=r"history.jsonl has 4,398,046,511,104 bytes, almost all of which are holes"):
        read(played)
    again(digits, played)  # from the older generation
    assert len(read(played).rows) == 3


def test_a_large_file_without_holes_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedalpha.store.files import read_bytes

    monkeypatch.setattr("fedalpha.store.files._LARGE", 2**16)
    (tmp_path / "zeros").write_bytes(bytes(2**17))
    with (tmp_path / "some").open("wb") as file:
        file.write(bytes(2**17))
        file.truncate(2**18)
    assert len(read_bytes(tmp_path / "zeros")) == 2**17
    assert read_bytes(tmp_path / "some") == bytes(2**18)


def test_a_logger_in_a_config_does_not_write_unasked(played: Path, tmp_path: Path) -> None:
    from fedalpha.runs.reading import read_settings
    from fedalpha.trust import UntrustedError

    stored = json.loads((played / "config.json").read_text())
    given = stored["settings"] if stored.get("settings") else {"rounds": 2}
    target = tmp_path / "elsewhere.csv"
    for content in ({**given, "log": [f"csv({str(target)!r})"]}, {**stored, "settings": {**given, "log": ["wandb"]}}):
        (played / "config.json").write_text(json.dumps(content))
        with pytest.raises(UntrustedError, match="which writes files or sends data"):
            read_settings(played / "config.json", {})
    assert not target.exists()


def test_a_picture_shows_names_as_they_are(played: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    r"""A name with "$" is no mathematics, and a matplotlibrc in the folder where the user is runs no LaTeX."""
    import matplotlib

    from fedalpha.report.single import run_page

    for strategy in (r"$\frac{$", "$" * 100_001, "x" * 10**6, "\n" * 10**5, "<script>", "\x1b]52;c;\x07"):
        (played / "config.json").write_text(json.dumps({"strategy": strategy}))
        page = run_page(played)
        assert len(page) < 10**6
        assert "<script" not in page
        assert "\x1b" not in page
    with matplotlib.rc_context({"text.usetex": True, "text.latex.preamble": r"\input{/etc/passwd}"}):
        monkeypatch.setattr("matplotlib.texmanager.TexManager._run_checked_subprocess", None)
        read(played).plot()
        run_page(played)


def test_differences_are_listed_in_short(digits: Pooled, played: Path) -> None:
    stored = json.loads((played / "config.json").read_text())
    (played / "config.json").write_text(json.dumps({**stored, **{f"x{i}": i for i in range(100_000)}}))
    (played / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="and 99950 more") as error:
        again(digits, played)
    assert len(str(error.value)) < 5_000


def test_a_config_without_end_is_a_short_error(played: Path) -> None:
    from typer.testing import CliRunner

    from fedalpha.cli import app

    (played / "config.json").write_text("[" * 100_000)
    found = CliRunner().invoke(app, ["resume", str(played)])
    assert isinstance(found.exception, ValueError)
    assert len(str(found.exception)) < 1_000
