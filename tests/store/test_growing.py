"""Files that grow at their end."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fedalpha.store import Growing


def growing(path: Path) -> Growing:
    return Growing(path, lambda text: text.encode() + b"\n")


def test_size_and_checksum_are_those_of_the_file(tmp_path: Path) -> None:
    file = growing(tmp_path / "file")
    histories = ["", "a", "a", "b", "b ccc", "b c", "b c d e", "b", "x y z", ""]
    for records in map(str.split, histories):
        size, digest = file.write(records)
        content = file.path.read_bytes()
        assert content.decode().splitlines() == records
        assert (size, digest) == (len(content), hashlib.sha256(content).hexdigest())


def test_a_file_that_somebody_changed_is_written_whole(tmp_path: Path) -> None:
    file = growing(tmp_path / "file")
    for change in (lambda: file.path.unlink(), lambda: file.path.write_text("a\nb\nc\nand more")):
        file.write(["a", "b", "c"])
        change()
        file.write(["a", "b", "c", "d"])
        assert file.path.read_text() == "a\nb\nc\nd\n"


def test_a_file_that_was_read_grows(tmp_path: Path) -> None:
    growing(tmp_path / "file").write(["a", "b", "c"])
    inode = (tmp_path / "file").stat().st_ino
    file = growing(tmp_path / "file")
    file.adopt([b"a\n", b"b\n", b"c\n"])
    file.write(["a", "b", "C", "d"])
    assert file.path.read_text() == "a\nb\nC\nd\n"
    assert file.path.stat().st_ino == inode  # it was not replaced
