"""A file of records that grows at its end: a write costs what is new, however long the file is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedalpha.store.files import own_size, write_atomically, write_tail


class Growing:
    """The records of a file, each as the bytes that ``encode`` makes of it.

    A record never changes once another one follows it. The last record may change between two writes, so every
    write replaces it. The first write of a process, and one that finds a file of another size, writes the whole file.

    >>> import tempfile
    >>> file = Growing(Path(tempfile.mkdtemp()) / "lines", lambda text: text.encode() + b"\\n")
    >>> _ = file.write(["one", "tw"])
    >>> size, _ = file.write(["one", "two", "three"])
    >>> file.path.read_bytes(), size
    (b'one\\ntwo\\nthree\\n', 14)
    """

    def __init__(self, path: Path, encode: Callable[[Any], bytes], root: Path | None = None) -> None:
        self.path, self._encode, self._root = path, encode, root
        self.forget()

    def write(self, records: Sequence[Any]) -> tuple[int, str]:
        """Make the file hold these records. Returns its size and its SHA-256.

        A crash leaves at least all records of the previous write but its last one.
        """
        if not self._is_there(len(records)):
            self.forget()
        new = [self._encode(record) for record in records[self._count :]]
        settled, last = b"".join(new[:-1]), b"".join(new[-1:])
        if self._size:
            write_tail(self.path, self._size, settled + last, self._root)
        else:
            write_atomically(self.path, settled + last, self._root)
        self._settle(settled, len(new[:-1]))
        return self._end(last)

    def adopt(self, records: Sequence[bytes]) -> None:
        """Take these records, which were read from the file and verified, as those of the last write."""
        self.forget()
        self._settle(b"".join(records[:-1]), len(records[:-1]))
        self._end(b"".join(records[-1:]))

    def _settle(self, content: bytes, count: int) -> None:
        self._sum.update(content)
        self._size += len(content)
        self._count += count

    def _end(self, last: bytes) -> tuple[int, str]:
        whole = self._sum.copy()
        whole.update(last)
        self._length = self._size + len(last)
        return self._length, whole.hexdigest()

    def forget(self) -> None:
        """Write the whole file the next time: another process may have changed it."""
        # All records but the last one: how many, their bytes, their checksum.
        self._count, self._size, self._sum = 0, 0, hashlib.sha256()
        self._length = 0

    def _is_there(self, records: int) -> bool:
        """Whether the file is as the last write left it, and these are its records and later ones."""
        return self._count < records and own_size(self.path, self._root) == self._length
