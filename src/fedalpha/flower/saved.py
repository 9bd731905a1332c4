"""What a server app needs in order to go on after it was killed: one file per generation, never pickled.

A tree of arrays, JSON scalars, lists and dicts is stored as safetensors (the arrays) with the tree as
JSON in the header and a SHA-256 over both. A new generation is written beside the old one and moved
into place, so that a kill at any instant leaves a readable file. One server at a time holds the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from logging import WARNING
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.supercore import log
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedalpha.checkpoint.lock import FolderLock
from fedalpha.flower.sums import Arrays

_NAMES = ("server.safetensors", "server-previous.safetensors")


class Saved:
    """A folder with the last two generations of a server's state."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"save = {str(folder)!r} is a file; give a folder")
        self._damaged = self._held = False
        self._locks = ExitStack()

    def hold(self) -> None:
        """Lock the folder until `release` or the end of the process, however it ends."""
        if not self._held:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._locks.enter_context(FolderLock(self.folder))
            self._held = True

    def release(self) -> None:
        """Unlock the folder, if it is locked."""
        self._locks.close()
        self._held = False

    def go_on(self, identity: Mapping[str, Any], begun: str) -> dict[str, Any] | None:
        """Lock the folder and return its newest state; that of another run is refused, and the lock given back.

        ``begun`` is the `digest` of the arrays with which the run begins. A state that began with others is only
        remarked upon: an initial model that was not drawn from a seed is another one after each start.
        """
        self.hold()
        try:
            tree = self.read()
            if tree is not None:
                _refuse_another_run(self.folder, tree["identity"], identity)
        except BaseException:
            self.release()
            raise
        if tree is not None and tree["begun"] != begun:
            text = "fedalpha: initial_arrays are others than those with which the run in %s began; it goes on"
            log(WARNING, text, self.folder)
        return tree

    def write(self, tree: dict[str, Any]) -> None:
        """Store a new generation; the last one that is whole is kept beside it."""
        arrays: dict[str, Any] = {}
        text = json.dumps(_pack(tree, "state", arrays))
        header = {"tree": text, "sha256": digest(arrays, text)}
        self.folder.mkdir(parents=True, exist_ok=True)
        newest, previous = (self.folder / name for name in _NAMES)
        fresh = self.folder / "server.new"
        with fresh.open("wb") as file:
            file.write(save(arrays, header))
            file.flush()
            os.fsync(file.fileno())
        if newest.exists() and not self._damaged:
            os.replace(newest, previous)
        os.replace(fresh, newest)
        self._damaged = False
        _sync(self.folder)

    def read(self) -> dict[str, Any] | None:
        """The newest generation that is whole; None where nothing was stored."""
        found = [path for name in _NAMES if (path := self.folder / name).exists()]
        for path in found:
            try:
                with safe_open(path, framework="numpy") as file:
                    header = file.metadata() or {}
                    arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a mapping
                text = header["tree"]
                if header["sha256"] != digest(arrays, text):
                    raise ValueError("its SHA-256 does not match")
                tree: dict[str, Any] = _unpack(json.loads(text), arrays)
                self._damaged = path != self.folder / _NAMES[0]
                return tree
            except (OSError, KeyError, ValueError, SafetensorError) as error:
                log(WARNING, "fedalpha: %s is damaged (%s); looking for the generation before it", path, error)
        if found:
            raise ValueError(f"every generation in {self.folder} is damaged; remove the folder to start from round 1")
        return None

    def write_rows(self, rows: list[dict[str, Any]]) -> None:
        """``history.jsonl``, for people and for fedalpha's plots."""
        fresh = self.folder / "history.new"
        fresh.write_text("".join(json.dumps(row, allow_nan=False) + "\n" for row in rows))
        os.replace(fresh, self.folder / "history.jsonl")


def _refuse_another_run(folder: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    changes = [
        "the model has other names, shapes or dtypes"
        if key == "model"
        else f"{key} is {there.get(key, 'not set')} there and {here.get(key, 'not set')} here"
        for key in dict.fromkeys([*there, *here])
        if there.get(key) != here.get(key)
    ]
    if changes:
        raise ValueError(
            f"{folder} holds another run: {'; '.join(changes)}. Name another folder in save=, remove that one, "
            "or give the same settings to go on"
        )


def _pack(value: Any, path: str, arrays: dict[str, Any]) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case np.bool_() | np.integer() | np.floating():
            return value.item()
        case np.ndarray():
            arrays[path] = np.ascontiguousarray(value).reshape(value.shape)
            return {"array": path}
        case ArrayRecord():
            return {"record": {k: _pack(a.numpy(), f"{path}/{k}", arrays) for k, a in value.items()}}
        case dict():
            packed = [[_key(k, path), _pack(v, f"{path}/{k}", arrays)] for k, v in value.items()]
            return {"dict": packed}
        case list() | tuple():
            return {"list": [_pack(v, f"{path}/{i}", arrays) for i, v in enumerate(value)]}
    raise TypeError(
        f"{path} is a {type(value).__name__}, which cannot be saved: keep it as arrays, numbers, texts, lists or "
        "dicts, or run without save="
    )


def _key(key: Any, path: str) -> int | str:
    if isinstance(key, str | int):
        return key
    raise TypeError(f"{path} has a key {key!r}, which cannot be saved: use texts or whole numbers")


def _unpack(value: Any, arrays: dict[str, Any]) -> Any:
    match value:
        case {"array": path}:
            return arrays[path]
        case {"record": items}:
            return ArrayRecord({k: Array(_unpack(a, arrays)) for k, a in items.items()})
        case {"dict": items}:
            return {k: _unpack(v, arrays) for k, v in items}
        case {"list": items}:
            return [_unpack(v, arrays) for v in items]
    return value


def digest(arrays: Arrays, text: str = "") -> str:
    """The SHA-256 of names, dtypes, shapes and values, and of a text before them."""
    found = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        found.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        found.update(arrays[name].tobytes())
    return found.hexdigest()


def _sync(folder: Path) -> None:
    """Make the renames durable, where folders can be synchronised."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
