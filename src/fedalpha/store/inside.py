"""Folders that another person may have filled: nothing in them is reached through a link.

The user names a folder (the root), which may be a link itself. Every folder and file below it is opened from the
descriptor of the folder that holds it, and a link is refused there. So a name in the folder cannot lead out of it, not
even if it is replaced between a check and its use.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_REGULAR = _NO_LINK | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""A pipe in the place of a file must not block; Windows would change line ends."""
_BY_DESCRIPTOR = os.open in os.supports_dir_fd


class LinkError(ValueError):
    """A link, or something that is neither a file nor a folder, where a folder should hold one of its own."""


@dataclass(frozen=True)
class Spot:
    """A name in a folder that is open as ``folder``; None where a system has no such calls (Windows)."""

    path: Path
    folder: int | None

    def called(self, name: str) -> str:
        """What functions of ``os`` take for ``name`` in this folder, together with ``dir_fd=spot.folder``."""
        return name if self.folder is not None else str(self.path.with_name(name))

    @property
    def name(self) -> str:
        return self.called(self.path.name)


@contextmanager
def spot(path: Path, root: Path | None = None, *, make: bool = False) -> Iterator[Spot]:
    """Open the folder of ``path``, step by step from ``root`` (by default the folder itself).

    ``make`` creates the folders that are missing below the root.
    """
    root = path.parent if root is None else root
    parts = path.relative_to(root).parts
    if not parts or ".." in parts:
        raise LinkError(f"{path} is not inside {root}; name a file in that folder")
    here = root
    descriptor = os.open(root, _DIRECTORY) if _BY_DESCRIPTOR else None
    try:
        for part in parts[:-1]:
            here /= part
            called = part if descriptor is not None else str(here)
            if make:
                with suppress(FileExistsError):
                    os.mkdir(called, dir_fd=descriptor)
            if _is_link(called, descriptor):
                raise _link(here, root)
            if descriptor is not None:
                inner = os.open(called, _DIRECTORY | _NO_LINK, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
        yield Spot(path, descriptor)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def open_regular(path: Path, flags: int, root: Path | None = None, *, make: bool = False) -> int:
    """The descriptor of the regular file ``path``."""
    with spot(path, root, make=make) as place:
        if _is_link(place.name, place.folder):
            raise _link(path, root or path.parent)
        descriptor = os.open(place.name, flags | _REGULAR, 0o666, dir_fd=place.folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise LinkError(f"{path} is not a regular file; remove it")
    return descriptor


def names(folder: Path, root: Path | None = None) -> list[str]:
    """The names in a folder, sorted; none if there is no such folder."""
    try:
        with spot(folder / "*", root) as place:
            return sorted(os.listdir(place.folder if place.folder is not None else folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def remove_tree(folder: Path, root: Path) -> None:
    """Remove a folder with everything in it, as far as that is allowed; links are removed, not followed."""
    import shutil

    with suppress(OSError, LinkError), spot(folder, root) as place:
        if _is_link(place.name, place.folder):
            os.unlink(place.name, dir_fd=place.folder)
        elif place.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            shutil.rmtree(place.name, ignore_errors=True, dir_fd=place.folder)


def _is_link(name: str, folder: int | None) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _link(path: Path, root: Path) -> LinkError:
    return LinkError(
        f"{path} is a link, and fedalpha follows no links inside {root}; put the real file or folder in its place, or "
        "remove it"
    )
