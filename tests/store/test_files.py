"""Atomic writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fedalpha.store import write_atomically
from fedalpha.store.files import sweep


def test_bytes_are_written_as_they_are_on_windows_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without O_BINARY, which other systems do not have, Windows turns every 0x0A into 0x0D 0x0A."""
    binary, real, flags = 1 << 30, os.open, []

    def opened(path: str, how: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        flags.append(how)
        return real(path, how & ~binary, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "O_BINARY", binary, raising=False)
    monkeypatch.setattr(os, "open", opened)
    write_atomically(tmp_path / "file", b"content")
    assert flags[-1] & binary
    assert (tmp_path / "file").read_bytes() == b"content"


def test_what_a_killed_process_left_is_swept_away(tmp_path: Path) -> None:
    if (child := os.fork()) == 0:
        os.replace = lambda *_, **__: os._exit(0)
        write_atomically(tmp_path / "file", b"content")
    os.waitpid(child, 0)
    assert len(list(tmp_path.iterdir())) == 1
    write_atomically(tmp_path / "file", b"other")
    sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
