"""Atomic writes: after a crash at any instant a file has its old content or its new one.

``root`` is the folder that the user named; the file is in it or below it. No link below it is followed (`inside`).
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
from pathlib import Path

from fedalpha.store.inside import Spot, names, open_regular, spot

TEMPORARY = ".tmp"
"""How the name of an unfinished file ends."""

CONFIG_BYTES = 2**24
"""The most that a file of settings can need."""

_LARGE, _RATIO = 2**28, 50
"""A file of more than 256 MB is refused if it would take 50 times its place on the disk in memory."""
_OURS = re.compile(r"\..+\.([0-9a-f]{16}|[0-9]+)" + re.escape(TEMPORARY))
_WRITE = os.O_WRONLY | os.O_CREAT


def write_atomically(path: Path, content: bytes, root: Path | None = None) -> None:
    """Write to a temporary file in the same folder, fsync, rename, fsync the folder.

    If the content cannot be written, the old file stays as it was and the temporary file is removed. A killed
    process leaves a temporary file, which `sweep` removes. A link in the place of the file is replaced.
    """
    with spot(path, root, make=True) as place:
        # The name cannot be guessed, and O_EXCL opens no file or link that is there already.
        temporary = place.called(f".{path.name}.{secrets.token_hex(8)}{TEMPORARY}")
        flags = _WRITE | os.O_EXCL | getattr(os, "O_BINARY", 0)  # Windows would change line ends
        try:
            _fill(os.open(temporary, flags, 0o666, dir_fd=place.folder), content, 0)
            os.replace(temporary, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=place.folder)
            raise
        _sync(place)


def write_tail(path: Path, offset: int, content: bytes, root: Path | None = None) -> None:
    """Replace all bytes of a file from ``offset`` on, and fsync. The bytes before ``offset`` survive any crash."""
    _fill(open_regular(path, os.O_WRONLY, root), content, offset)


def append(path: Path, content: bytes, root: Path | None = None) -> None:
    """Add bytes to the end of a file, which is made if it is not there."""
    descriptor = open_regular(path, _WRITE | os.O_APPEND, root, make=True)
    try:
        shared = os.fstat(descriptor).st_nlink > 1
        if not shared:
            _write_all(descriptor, content)
    finally:
        os.close(descriptor)
    if shared:  # another name leads to the same bytes, which must not change
        write_atomically(path, read_bytes(path, root) + content, root)


def read_bytes(path: Path, root: Path | None = None, *, most: int | None = None) -> bytes:
    """The content of a file. One of more than ``most`` bytes is refused before it is read."""
    with os.fdopen(open_regular(path, os.O_RDONLY, root), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if most is not None and size > most:
            raise ValueError(f"{path} has {size:,} bytes, more than the {most:,} that it can need; remove it")
        if size > _LARGE and _stored(file.fileno(), size) * _RATIO < size:
            raise ValueError(f"{path} has {size:,} bytes, almost all of which are holes; remove it")
        return file.read(size)  # a file of /proc has no size, and may have no end


def _stored(descriptor: int, size: int) -> int:
    """How many bytes of a file are on the disk, counted until they are enough; the rest of it are holes."""
    found = place = 0
    if not hasattr(os, "SEEK_DATA"):
        return size
    with contextlib.suppress(OSError):  # there is no data after this place
        while place < size and found * _RATIO < size:
            start = os.lseek(descriptor, place, os.SEEK_DATA)
            place = os.lseek(descriptor, start, os.SEEK_HOLE)
            found += place - start
    os.lseek(descriptor, 0, os.SEEK_SET)
    return found


def own_size(path: Path, root: Path | None = None) -> int | None:
    """How many bytes a file has; None if there is none, or if another name may lead to the same bytes."""
    with contextlib.suppress(FileNotFoundError), spot(path, root) as place:
        found = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
        return found.st_size if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 else None
    return None


def remove(path: Path, root: Path | None = None) -> None:
    """Remove a file, or a link itself, if it is there."""
    with contextlib.suppress(FileNotFoundError), spot(path, root) as place:
        os.unlink(place.name, dir_fd=place.folder)


def sweep(folder: Path, root: Path | None = None) -> None:
    """Remove the temporary files that killed processes left. Call it where no other process writes to the folder."""
    for name in names(folder, root):
        if _OURS.fullmatch(name):  # the folder may hold temporary files of other programs
            with contextlib.suppress(OSError):
                remove(folder / name, root)


def sync_folder(folder: Path, root: Path | None = None) -> None:
    """Make renames and removals in a folder survive a power failure."""
    with spot(folder / "*", root) as place:
        _sync(place)


def _sync(place: Spot) -> None:
    if place.folder is not None:  # on Windows folders cannot be opened
        os.fsync(place.folder)


def _fill(descriptor: int, content: bytes, offset: int) -> None:
    try:
        os.ftruncate(descriptor, offset)
        os.lseek(descriptor, offset, os.SEEK_SET)
        _write_all(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]
