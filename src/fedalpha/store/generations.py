"""Two generations of a state, each with checksums; the older one is used when the newer one is damaged.

Generation n is ``<n>.safetensors`` (all arrays, and the tree as JSON) and the rows at the start of ``even.rows`` or
``odd.rows``, as n is even or odd. ``<n>.json``, written last, is its manifest: the sizes and SHA-256 of both and of
itself. A save appends to the rows file that the newest whole generation does not use, and its other files have a new
number: a crash at any instant leaves that generation as it was, and a save writes the state and the new rows only.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedalpha.store.files import TEMPORARY, read_bytes, remove, sync_folder, write_atomically
from fedalpha.store.growing import Growing
from fedalpha.store.inside import names
from fedalpha.store.tree import pack, unpack
from fedalpha.text import shown

FORMAT = 2
_ROWS = ("even.rows", "odd.rows")
_TREE = "tree"
_MANIFEST = re.compile(r"([0-9]{6,18})\.json")
_MANIFEST_BYTES = 2**16
_MOST_PROBLEMS = 3
_FREE, _RATIO = 2**24, 50
"""Rows may take 16 MB, or 50 times their compressed size. Those of real runs shrink by less than 20."""

Rows = list[dict[str, Any]]
Accept = Callable[[Any, Rows], Any]
"""Turns a state and its rows into what the caller needs, or raises: then the generation is damaged."""


@dataclass(frozen=True)
class Most:
    """The most that a run can need: the bytes of its state, how many rows, and the bytes of one row as JSON."""

    state: int = 2**36
    rows: int = 10**8
    row: int = 2**28


class DamagedError(RuntimeError):
    """No generation can be read, though there were some."""


class FormatError(ValueError):
    """A file or folder of another format, written by another version of fedalpha."""


class Generations:
    """The generations in a folder. ``save`` is atomic; ``load`` returns the newest intact one."""

    def __init__(self, folder: Path, root: Path | None = None) -> None:
        """``root`` is the folder that the user named; by default the one above ``folder``."""
        self.folder, self._root = folder, root or folder.parent
        self._newest: int | None = None
        """the generation that this object has loaded or saved last"""
        self._rows = [Growing(folder / name, _packed, self._root) for name in _ROWS]

    def save(self, round: int, state: Any, rows: Sequence[dict[str, Any]]) -> None:
        """Save the state after ``round`` rounds together with all rows so far.

        ``rows`` begins with those of the previous save, of which only the last one may have changed.
        """
        from safetensors.numpy import save

        tree, arrays = pack(state)
        # The tree is an array too: a header of safetensors holds no more than 100 MB.
        content = save({**arrays, _TREE: np.frombuffer(tree.encode(), dtype=np.uint8)})
        number = 1 + (max(self._numbers(), default=-1) if self._newest is None else self._newest)
        data, manifest = self._paths(number)
        growing = self._rows[number % 2]
        size, digest = growing.write(rows)
        write_atomically(data, content, self._root)
        files = {data.name: _facts(content), growing.path.name: {"bytes": size, "sha256": digest}}
        facts = {"format": FORMAT, "number": number, "round": round, "files": files}
        write_atomically(manifest, _signed(facts), self._root)
        self._newest = number
        self._remove_all_but(*self._paths(number), *self._paths(number - 1), *(growing.path for growing in self._rows))

    def load(self, most: Most | None = None, accept: Accept | None = None) -> tuple[Any, Rows, list[str]] | None:
        """(state, rows, problems of newer generations), or None if nothing was ever saved.

        A generation that holds more than ``most``, or that ``accept`` refuses, counts as damaged: its checksums show
        that it is whole, not who wrote it. What ``accept`` returns takes the place of the state.
        """
        self._forget()
        numbers = self._numbers()
        problems: list[str] = []
        for number in numbers:
            try:
                state, rows = self._read(number, most or Most())
                state = state if accept is None else accept(state, rows)
            except FormatError:
                raise
            except Exception as error:  # a forged file may fail in any way
                reason = str(error) if isinstance(error, OSError | ValueError) else f"{type(error).__name__}: {error}"
                problems.append(f"{self._paths(number)[1]} is damaged ({shown(reason)})")
                continue
            self._newest = number
            return state, rows, _first(problems)
        if numbers:
            raise DamagedError(
                f"{'; '.join(_first(problems))}; there is no older one to go back to. "
                f"Remove {self.folder} to start again from round 0"
            )
        return None

    def clear(self) -> None:
        """Remove all generations, durably. A crash at any instant leaves no damaged generation."""
        for number in self._numbers():
            remove(self._paths(number)[1], self._root)
        if names(self.folder, self._root):
            self._remove_all_but()
            sync_folder(self.folder, self._root)
        self._forget()

    @property
    def empty(self) -> bool:
        """Whether nothing is saved."""
        return not self._numbers()

    def _forget(self) -> None:
        self._newest = None
        for growing in self._rows:
            growing.forget()

    def _read(self, number: int, most: Most) -> tuple[Any, Rows]:
        from safetensors import SafetensorError
        from safetensors.numpy import load

        data, manifest = self._paths(number)
        facts = _verified(read_bytes(manifest, self._root, most=_MANIFEST_BYTES))
        if facts.get("format") != FORMAT:
            raise FormatError(
                f"{manifest} is of format {shown(facts.get('format'))}, and this version of fedalpha reads format "
                f"{FORMAT}; resume it with the version that wrote it, or use another folder"
            )
        if facts["number"] != number:
            raise ValueError(f"it is the manifest of generation {facts['number']}")
        growing = self._rows[number % 2]
        content = _checked(data, read_bytes(data, self._root, most=most.state), facts)
        stored = read_bytes(growing.path, self._root, most=most.rows * most.row)
        records = list(_records(_checked(growing.path, stored, facts, grown=True)))
        rows = _unpacked(records, most)
        try:
            arrays = load(content)
        except SafetensorError as error:  # a state forged together with its manifest
            raise ValueError(str(error)) from None
        state = unpack(arrays.pop(_TREE).tobytes().decode(), arrays)
        growing.adopt(records)
        return state, rows

    def _paths(self, number: int) -> tuple[Path, Path]:
        return self.folder / f"{number:06d}.safetensors", self.folder / f"{number:06d}.json"

    def _numbers(self) -> list[int]:
        """Generations with a manifest, newest first."""
        found = (_MANIFEST.fullmatch(name) for name in names(self.folder, self._root))
        return sorted((int(match[1]) for match in found if match), reverse=True)

    def _remove_all_but(self, *kept: Path) -> None:
        """Remove older generations, manifests first, and what an interrupted save has left."""
        found = [self.folder / name for name in names(self.folder, self._root)]
        for path in sorted(found, key=lambda p: (p.suffix != ".json", p.name)):
            if path not in kept and path.suffix in (".json", ".safetensors", ".rows", TEMPORARY):
                with contextlib.suppress(OSError):
                    remove(path, self._root)


def _first(problems: list[str]) -> list[str]:
    """A few of them, and how many more there are: a folder may hold any number of damaged generations."""
    more = len(problems) - _MOST_PROBLEMS
    return problems if more <= 0 else [*problems[:_MOST_PROBLEMS], f"{more:,} more are damaged"]


def _packed(row: dict[str, Any]) -> bytes:
    """A row as a record: the length of what follows, then JSON, compressed."""
    content = zlib.compress(json.dumps(row).encode(), 1)
    return len(content).to_bytes(4, "little") + content


def _unpacked(records: Sequence[bytes], most: Most) -> Rows:
    """The rows of records, none larger than a row can be, and all together not much larger than their records."""
    if len(records) > most.rows:
        raise ValueError(f"it has {len(records)} rows, and the run can have {most.rows}")
    left = max(_FREE, _RATIO * sum(map(len, records)))
    rows = []
    for record in records:
        limit = min(left, most.row)
        content = zlib.decompressobj().decompress(memoryview(record)[4:], limit + 1)
        if len(content) > limit:
            raise ValueError(f"a row has more than {limit:,} bytes")
        left -= len(content)
        rows.append(json.loads(content))
    return rows


def _records(content: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(content):
        end = start + 4 + int.from_bytes(content[start : start + 4], "little")
        yield content[start:end]
        start = end


def _facts(content: bytes) -> dict[str, Any]:
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _checked(path: Path, content: bytes, manifest: dict[str, Any], grown: bool = False) -> bytes:
    """The content of a file as it was saved; ``grown``: later saves may have added to its end."""
    expected = manifest["files"][path.name]
    found = content[: expected["bytes"]] if grown else content
    if len(found) != expected["bytes"]:
        raise ValueError(f"{path.name} has {len(content)} bytes instead of {expected['bytes']}")
    if _facts(found) != expected:
        raise ValueError(f"{path.name} does not match its SHA-256")
    return found


def _signed(facts: dict[str, Any]) -> bytes:
    """A manifest as text, with the SHA-256 of the rest of it."""
    body = json.dumps(facts, sort_keys=True)
    return (json.dumps({**facts, "sha256": hashlib.sha256(body.encode()).hexdigest()}, indent=2) + "\n").encode()


def _verified(content: bytes) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = json.loads(content)
        claimed = facts.pop("sha256")
    except (ValueError, AttributeError, KeyError, TypeError):
        raise ValueError("it cannot be read") from None
    body = json.dumps(facts, sort_keys=True)
    if hashlib.sha256(body.encode()).hexdigest() != claimed or _signed(facts) != content:
        raise ValueError("it does not match its SHA-256")
    return facts
