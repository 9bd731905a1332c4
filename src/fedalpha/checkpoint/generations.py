"""Two generations of a checkpoint, each with a checksum; the older one is used when the newer is damaged.

A generation is ``<round>.safetensors`` (all tensors, and the JSON tree as metadata) and, written
after it, ``<round>.json``: a manifest with the size and the SHA-256 of that file and of itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedalpha.checkpoint.files import TEMPORARY, sync_folder, write_atomically
from fedalpha.checkpoint.tree import pack, unpack

KEEP = 2
FORMAT = 1


class DamagedError(RuntimeError):
    """No generation can be read, though there were some."""


class Generations:
    """The generations in a folder. ``save`` is atomic; ``load`` gives the newest one that is whole."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._compressed: list[bytes] = []

    def save(self, round: int, state: Any, rows: Sequence[dict[str, Any]]) -> None:
        """Save the state after ``round`` rounds together with all rows so far.

        Rows are compressed once and kept, so that the cost of a save does not grow with parsing.
        """
        import torch
        from safetensors.torch import save

        self.folder.mkdir(exist_ok=True)
        del self._compressed[len(rows) :]
        self._compressed += [zlib.compress(_line(row), 1) for row in rows[len(self._compressed) :]]
        tree, tensors = pack(state)
        history = torch.frombuffer(bytearray(b"".join(self._compressed)), dtype=torch.uint8)
        content = save({**tensors, "history": history}, metadata={"state": tree})
        data, manifest = self._paths(round)
        write_atomically(data, content)
        facts = {
            "format": FORMAT,
            "round": round,
            "files": {data.name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}},
        }
        write_atomically(manifest, _signed(facts))
        # A generation newer than this one was damaged: the run went back to an older one.
        self._remove_all_but([r for r in self._rounds() if r <= round][:KEEP])

    def load(self) -> tuple[Any, list[dict[str, Any]], list[str]] | None:
        """(state, rows, what was wrong with newer generations), or None if nothing was ever saved."""
        rounds = self._rounds()
        problems = []
        for round in rounds:
            try:
                state, rows = self._read(round)
            except (OSError, ValueError) as error:
                problems.append(f"the checkpoint of round {round} is damaged ({error})")
                continue
            self._compressed = [zlib.compress(_line(row), 1) for row in rows]
            return state, rows, problems
        if rounds:
            raise DamagedError(
                f"{'; '.join(problems)}; there is no older one to go back to. "
                f"Remove {self.folder} to start again from round 0"
            )
        return None

    def clear(self) -> None:
        """Remove all generations, so that they stay removed; stopped at any instant it leaves none that is damaged."""
        for round in self._rounds():
            os.unlink(self._paths(round)[1])
        if self.folder.is_dir():
            self._remove_all_but([])
            sync_folder(self.folder)
        self._compressed.clear()

    def _read(self, round: int) -> tuple[Any, list[dict[str, Any]]]:
        from safetensors import SafetensorError
        from safetensors.torch import load

        data, manifest = self._paths(round)
        facts = _verified(manifest.read_bytes())
        if facts["format"] != FORMAT or facts["round"] != round:
            raise ValueError("its manifest is of another format or round")
        content = data.read_bytes()
        expected = facts["files"][data.name]
        if len(content) != expected["bytes"]:
            raise ValueError(f"{data.name} has {len(content)} bytes instead of {expected['bytes']}")
        if hashlib.sha256(content).hexdigest() != expected["sha256"]:
            raise ValueError(f"{data.name} does not match its SHA-256")
        try:
            tensors = load(content)
        except SafetensorError as error:  # a checkpoint forged together with its manifest
            raise ValueError(str(error)) from None
        history = tensors.pop("history").numpy().tobytes()
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        return unpack(header["__metadata__"]["state"], tensors), _rows(history)

    def _paths(self, round: int) -> tuple[Path, Path]:
        return self.folder / f"{round:06d}.safetensors", self.folder / f"{round:06d}.json"

    def _rounds(self) -> list[int]:
        """Rounds with a manifest, newest first."""
        if not self.folder.is_dir():
            return []
        return sorted((int(p.stem) for p in self.folder.glob("*.json") if p.stem.isdigit()), reverse=True)

    def _remove_all_but(self, kept: Sequence[int]) -> None:
        """Remove older generations, manifests first, and what an interrupted save has left."""
        names = {path.name for round in kept for path in self._paths(round)}
        for path in sorted(self.folder.iterdir(), key=lambda p: (p.suffix != ".json", p.name)):
            if path.name not in names and (path.suffix in (".json", ".safetensors", TEMPORARY)):
                with contextlib.suppress(OSError):
                    os.unlink(path)


def _line(row: dict[str, Any]) -> bytes:
    return json.dumps(row, allow_nan=False).encode() + b"\n"


def _rows(compressed: bytes) -> list[dict[str, Any]]:
    rows = []
    while compressed:
        stream = zlib.decompressobj()
        rows.append(json.loads(stream.decompress(compressed)))
        compressed = stream.unused_data
    return rows


def _signed(facts: dict[str, Any]) -> bytes:
    """A manifest as text, with the SHA-256 of the rest of it."""
    body = json.dumps(facts, sort_keys=True)
    return (json.dumps({**facts, "sha256": hashlib.sha256(body.encode()).hexdigest()}, indent=2) + "\n").encode()


def _verified(content: bytes) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = json.loads(content)
        claimed = facts.pop("sha256")
    except (ValueError, AttributeError, KeyError, TypeError):
        raise ValueError("its manifest cannot be read") from None
    body = json.dumps(facts, sort_keys=True)
    if hashlib.sha256(body.encode()).hexdigest() != claimed or _signed(facts) != content:
        raise ValueError("its manifest does not match its SHA-256")
    return facts
