"""Atomic writes: after a crash at any instant a file has its old content or its new one."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

TEMPORARY = ".tmp"
"""How the name of an unfinished file ends."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a temporary file in the same folder, fsync, rename, fsync the folder.

    What could not be written leaves the old file as it was and no temporary file behind.
    """
    temporary = path.with_name(path.name + TEMPORARY)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)  # Windows would change line ends
        descriptor = os.open(temporary, flags, 0o666)
        try:
            left = memoryview(content)
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make renames and removals in a folder survive a power failure."""
    if os.name == "nt":
        return  # folders cannot be opened there
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
