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
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedalpha.store.files import TEMPORARY, sync_folder, write_atomically
from fedalpha.store.growing import Growing
from fedalpha.store.tree import pack, unpack

FORMAT = 2
_ROWS = ("even.rows", "odd.rows")
_TREE = "tree"

Rows = list[dict[str, Any]]


class DamagedError(RuntimeError):
    """No generation can be read, though there were some."""


class FormatError(ValueError):
    """A file or folder of another format, written by another version of fedalpha."""


class Generations:
    """The generations in a folder. ``save`` is atomic; ``load`` returns the newest one that is whole."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._newest: int | None = None
        """the generation that this object has loaded or saved last"""
        self._rows = [Growing(folder / name, _packed) for name in _ROWS]

    def save(self, round: int, state: Any, rows: Sequence[dict[str, Any]]) -> None:
        """Save the state after ``round`` rounds together with all rows so far.

        ``rows`` begins with those of the previous save, of which only the last one may have changed.
        """
        from safetensors.numpy import save

        tree, arrays = pack(state)
        # The tree is an array too: a header of safetensors holds no more than 100 MB.
        content = save({**arrays, _TREE: np.frombuffer(tree.encode(), dtype=np.uint8)})
        self.folder.mkdir(exist_ok=True)
        number = 1 + (max(self._numbers(), default=-1) if self._newest is None else self._newest)
        data, manifest = self._paths(number)
        growing = self._rows[number % 2]
        size, digest = growing.write(rows)
        write_atomically(data, content)
        files = {data.name: _facts(content), growing.path.name: {"bytes": size, "sha256": digest}}
        write_atomically(manifest, _signed({"format": FORMAT, "number": number, "round": round, "files": files}))
        self._newest = number
        self._remove_all_but(*self._paths(number), *self._paths(number - 1), *(growing.path for growing in self._rows))

    def load(self) -> tuple[Any, Rows, list[str]] | None:
        """(state, rows, problems of newer generations), or None if nothing was ever saved."""
        self._forget()
        numbers = self._numbers()
        problems = []
        for number in numbers:
            try:
                state, rows = self._read(number)
            except FormatError:
                raise
            except (OSError, ValueError, KeyError) as error:
                problems.append(f"{self._paths(number)[1]} is damaged ({error})")
                continue
            self._newest = number
            return state, rows, problems
        if numbers:
            raise DamagedError(
                f"{'; '.join(problems)}; there is no older one to go back to. "
                f"Remove {self.folder} to start again from round 0"
            )
        return None

    def clear(self) -> None:
        """Remove all generations, durably. A crash at any instant leaves no damaged generation."""
        for number in self._numbers():
            os.unlink(self._paths(number)[1])
        if self.folder.is_dir():
            self._remove_all_but()
            sync_folder(self.folder)
        self._forget()

    @property
    def empty(self) -> bool:
        """Whether nothing is saved."""
        return not self._numbers()

    def _forget(self) -> None:
        self._newest = None
        for growing in self._rows:
            growing.forget()

    def _read(self, number: int) -> tuple[Any, Rows]:
        from safetensors import SafetensorError
        from safetensors.numpy import load

        data, manifest = self._paths(number)
        facts = _verified(manifest.read_bytes())
        if facts.get("format") != FORMAT:
            raise FormatError(
                f"{manifest} is of format {facts.get('format')}, and this version of fedalpha reads format {FORMAT}; "
                "resume it with the version that wrote it, or use another folder"
            )
        if facts["number"] != number:
            raise ValueError(f"it is the manifest of generation {facts['number']}")
        growing = self._rows[number % 2]
        content = _checked(data, data.read_bytes(), facts)
        records = list(_records(_checked(growing.path, growing.path.read_bytes(), facts, grown=True)))
        try:
            arrays = load(content)
        except SafetensorError as error:  # a state forged together with its manifest
            raise ValueError(str(error)) from None
        state = unpack(arrays.pop(_TREE).tobytes().decode(), arrays)
        growing.adopt(records)
        return state, [json.loads(zlib.decompress(memoryview(record)[4:])) for record in records]

    def _paths(self, number: int) -> tuple[Path, Path]:
        return self.folder / f"{number:06d}.safetensors", self.folder / f"{number:06d}.json"

    def _numbers(self) -> list[int]:
        """Generations with a manifest, newest first."""
        if not self.folder.is_dir():
            return []
        return sorted((int(p.stem) for p in self.folder.glob("*.json") if p.stem.isdigit()), reverse=True)

    def _remove_all_but(self, *kept: Path) -> None:
        """Remove older generations, manifests first, and what an interrupted save has left."""
        for path in sorted(self.folder.iterdir(), key=lambda p: (p.suffix != ".json", p.name)):
            if path not in kept and path.suffix in (".json", ".safetensors", ".rows", TEMPORARY):
                with contextlib.suppress(OSError):
                    os.unlink(path)


def _packed(row: dict[str, Any]) -> bytes:
    """A row as a record: the length of what follows, then JSON, compressed."""
    content = zlib.compress(json.dumps(row).encode(), 1)
    return len(content).to_bytes(4, "little") + content


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
