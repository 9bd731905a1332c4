"""Atomic writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fedalpha.checkpoint import write_atomically


def test_bytes_are_written_as_they_are_on_windows_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without O_BINARY, which other systems do not have, Windows turns every 0x0A into 0x0D 0x0A."""
    binary, real, flags = 1 << 30, os.open, []

    def opened(path: Path, how: int, mode: int = 0o777) -> int:
        flags.append(how)
        return real(path, how & ~binary, mode)

    monkeypatch.setattr(os, "O_BINARY", binary, raising=False)
    monkeypatch.setattr(os, "open", opened)
    write_atomically(tmp_path / "file", b"content")
    assert flags[0] & binary
    assert (tmp_path / "file").read_bytes() == b"content"
