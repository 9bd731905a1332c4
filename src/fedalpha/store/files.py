"""Atomic writes: after a crash at any instant a file has its old content or its new one."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

TEMPORARY = ".tmp"
"""How the name of an unfinished file ends."""

_WRITE = os.O_WRONLY | os.O_CREAT


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a temporary file in the same folder, fsync, rename, fsync the folder.

    If the content cannot be written, the old file stays as it was and the temporary file is removed. A killed
    process leaves a temporary file, which `sweep` removes.
    """
    # Unique to the process, so that two writers cannot mix their bytes.
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY}")
    try:
        _write(temporary, content, 0)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_folder(path.parent)


def write_tail(path: Path, offset: int, content: bytes) -> None:
    """Replace all bytes of a file from ``offset`` on, and fsync. The bytes before ``offset`` survive any crash."""
    _write(path, content, offset)


def sweep(folder: Path) -> None:
    """Remove the temporary files that killed processes left. Call it where nobody else writes to the folder."""
    for path in folder.glob(f".*{TEMPORARY}"):
        with contextlib.suppress(OSError):
            os.unlink(path)


def sync_folder(path: Path) -> None:
    """Make renames and removals in a folder survive a power failure."""
    if os.name == "nt":
        return  # folders cannot be opened there
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(path: Path, content: bytes, offset: int) -> None:
    flags = _WRITE | getattr(os, "O_BINARY", 0)  # Windows would change line ends
    descriptor = os.open(path, flags, 0o666)
    try:
        os.ftruncate(descriptor, offset)
        os.lseek(descriptor, offset, os.SEEK_SET)
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
