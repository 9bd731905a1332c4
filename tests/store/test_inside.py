"""Folders that somebody else filled: no name in them leads out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fedalpha.store import FolderLock, Generations, Growing, LinkError, write_atomically
from fedalpha.store.files import append, own_size, read_bytes, sweep, write_tail
from fedalpha.store.inside import names, remove_tree

pytestmark = pytest.mark.skipif(os.name == "nt", reason="links need rights there")


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file outside of the given folder, whose content must survive."""
    file = tmp_path / "elsewhere" / "precious"
    file.parent.mkdir()
    file.write_text("mine")
    return file


@pytest.fixture
def given(tmp_path: Path) -> Path:
    folder = tmp_path / "given"
    folder.mkdir()
    return folder


def test_a_link_in_the_place_of_a_file_is_replaced_and_never_followed(given: Path, victim: Path) -> None:
    link = given / "history.jsonl"
    link.symlink_to(victim)
    for attempt in (
        lambda: write_tail(link, 0, b"x"),
        lambda: append(link, b"x"),
        lambda: read_bytes(link),
    ):
        with pytest.raises(LinkError, match=r"history.jsonl is a link, and fedalpha follows no links inside .*given"):
            attempt()
    assert own_size(link) is None
    write_atomically(link, b"new")
    assert (victim.read_text(), link.read_bytes(), link.is_symlink()) == ("mine", b"new", False)


def test_a_folder_that_is_a_link_is_refused(given: Path, victim: Path) -> None:
    (given / "checkpoint").symlink_to(victim.parent)
    inside = given / "checkpoint" / "precious"
    for attempt in (
        lambda: write_atomically(inside, b"x", given),
        lambda: read_bytes(inside, given),
        lambda: names(given / "checkpoint", given),
        lambda: Generations(given / "checkpoint").save(0, {}, []),
        lambda: Generations(given / "checkpoint").load(),
        lambda: Generations(given / "checkpoint").clear(),
        lambda: FolderLock(given / "checkpoint", given).__enter__(),
        lambda: sweep(given / "checkpoint", given),
    ):
        with pytest.raises(LinkError, match="checkpoint is a link"):
            attempt()
    remove_tree(given / "checkpoint", given)
    assert not (given / "checkpoint").is_symlink()
    assert [path.name for path in victim.parent.iterdir()] == ["precious"]
    assert victim.read_text() == "mine"


def test_the_folder_that_the_user_named_may_be_a_link(given: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").symlink_to(given)
    write_atomically(tmp_path / "mine" / "file", b"x")
    Generations(tmp_path / "mine" / "checkpoint").save(0, {}, [{"round": 0}])
    assert read_bytes(given / "file") == b"x"
    assert Generations(given / "checkpoint").load() is not None


def test_a_name_cannot_climb_out(given: Path, victim: Path) -> None:
    with pytest.raises(LinkError, match="is not inside"):
        read_bytes(given / ".." / "elsewhere" / "precious", given)


def test_a_lock_that_is_another_file_keeps_its_content(given: Path, victim: Path) -> None:
    (given / "lock").symlink_to(victim)
    with pytest.raises(LinkError):
        FolderLock(given).__enter__()
    (given / "lock").unlink()
    os.link(victim, given / "lock")
    with FolderLock(given):
        assert victim.read_text() == "mine"


def test_a_growing_file_with_a_second_name_is_written_anew(given: Path, victim: Path) -> None:
    lines = Growing(given / "lines", lambda text: text.encode())
    lines.write(["a", "b"])
    os.link(given / "lines", victim.parent / "copy")
    lines.write(["a", "b", "c"])
    assert ((victim.parent / "copy").read_text(), (given / "lines").read_text()) == ("ab", "abc")


def test_a_line_is_not_added_to_a_file_with_a_second_name(given: Path, victim: Path) -> None:
    os.link(victim, given / "times.jsonl")
    append(given / "times.jsonl", b"!")
    assert (victim.read_text(), (given / "times.jsonl").read_text()) == ("mine", "mine!")


def test_temporary_files_of_other_programs_stay(given: Path) -> None:
    for name in (".notes.tmp", ".x.0123456789abcdef.tmp", ".config.json.123.tmp"):
        (given / name).touch()
    sweep(given)
    assert [path.name for path in given.iterdir()] == [".notes.tmp"]


def test_a_pipe_or_a_huge_file_is_refused_at_once(given: Path) -> None:
    os.mkfifo(given / "config.json")
    with pytest.raises(LinkError, match="not a regular file"):
        read_bytes(given / "config.json")
    with (given / "sparse").open("wb") as file:
        file.truncate(2**33)
    with pytest.raises(ValueError, match="more than the 1,024 that it can need"):
        read_bytes(given / "sparse", most=1024)


def test_temporary_names_cannot_be_prepared(given: Path, victim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if an attacker guesses the name, the file is created exclusively."""
    monkeypatch.setattr("secrets.token_hex", lambda n: "guessed")
    (given / ".file.guessed.tmp").symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_atomically(given / "file", b"x")
    assert victim.read_text() == "mine"
