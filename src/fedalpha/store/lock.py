"""One process per folder."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

from fedalpha.store.inside import open_regular
from fedalpha.text import shown

try:
    import fcntl
except ImportError:  # not a POSIX system: the lock then holds within this process only
    fcntl = None  # type: ignore[assignment]

_held: set[str] = set()
"""Folders that this process has locked: a POSIX lock does not stop the same process from taking it again."""


class FolderLock:
    """An exclusive lock on ``folder/lock``, gone when the process ends, however it ends.

    It is a POSIX record lock (``lockf``, not ``flock``): it belongs to the process, so forked workers
    never hold it, even those that outlive their parent for an instant.
    """

    def __init__(self, folder: Path, root: Path | None = None) -> None:
        self.path, self._root = folder / "lock", root
        self._key = os.path.realpath(self.path)
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def __enter__(self) -> FolderLock:
        if self._key in _held:
            raise RuntimeError(f"{self.path.parent} is in use by this process; wait for that run or use another folder")
        descriptor = open_regular(self.path, os.O_RDWR | os.O_CREAT, self._root, make=True)
        try:
            if fcntl is not None:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = shown(os.read(descriptor, 32).decode(errors="replace").strip())
            os.close(descriptor)
            raise RuntimeError(
                f"{self.path.parent} is in use by another process ({owner or 'unknown'}); "
                "wait until it ends, stop it, or use another folder"
            ) from None
        if os.fstat(descriptor).st_nlink == 1:  # else another file would be overwritten
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"pid {os.getpid()}\n".encode())
        self._descriptor = descriptor
        _held.add(self._key)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            _held.discard(self._key)
