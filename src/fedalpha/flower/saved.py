"""The folder of ``save``: what a server app needs in order to resume after it was killed.

``checkpoint/`` holds two generations of the state (`fedalpha.store`), ``history.jsonl`` the rows for people and for
fedalpha's plots, ``lock`` keeps other servers out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from logging import WARNING
from pathlib import Path
from typing import Any

from flwr.app import Array, ArrayRecord
from flwr.supercore import log

from fedalpha.flower.sums import Arrays
from fedalpha.store import FolderLock, FormatError, Generations, Growing

_RECORD = "flwr.app.ArrayRecord"
_OLD = "server.safetensors"


class Saved:
    """A folder with the last two generations of a server's state."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"save = {str(folder)!r} is a file; give a folder")
        self._lock = FolderLock(self.folder)
        self._generations = Generations(self.folder / "checkpoint")
        self._history = Growing(self.folder / "history.jsonl", _line)
        self._rounds: list[dict[str, Any]] = []
        """Each round's row and metrics, as they are stored."""

    @property
    def held(self) -> bool:
        """Whether this server has locked the folder."""
        return self._lock.held

    def hold(self) -> None:
        """Lock the folder until `release` or the end of the process, however it ends."""
        if not self.held:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock.__enter__()

    def release(self) -> None:
        """Unlock the folder, if it is locked."""
        self._lock.__exit__(None, None, None)

    def go_on(self, identity: Mapping[str, Any], begun: str) -> dict[str, Any] | None:
        """Lock the folder and return its newest state. If it holds another run, unlock it and raise.

        ``begun`` is the `digest` of the arrays with which the run begins. If the stored run began with others, this
        is only logged: an initial model that was not drawn from a seed differs at each start.
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
            text = "fedalpha: initial_arrays differ from those with which the run in %s began; it is resumed"
            log(WARNING, text, self.folder)
        return tree

    def begin(self) -> None:
        """Lock the folder for a run that did not load it; one that holds finished rounds is refused."""
        self.hold()
        if self._is_new():
            return
        self.release()
        raise RuntimeError(
            f"{self.folder} holds finished rounds that this run would overwrite, because it was started without "
            "loading them. Call resume(initial_arrays) first and start with the arrays that it returns, or name "
            "another folder in save="
        )

    def write(self, tree: Mapping[str, Any]) -> None:
        """Store a new generation: ``rows``, ``metrics`` (name → round → values) and the rest of the state."""
        state = {key: _plain(value) for key, value in tree.items() if key not in ("rows", "metrics")}
        self._note(tree["rows"], tree["metrics"])
        state["before"] = {name: found[0] for name, found in tree["metrics"].items() if 0 in found}
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._generations.save(tree["round"], state, self._rounds)
        except TypeError as error:
            raise TypeError(f"{error}. Keep it in this form, or run without save=") from None
        self._history.write(tree["rows"])

    def read(self) -> dict[str, Any] | None:
        """The newest generation that is not damaged; None if nothing was stored."""
        if (self.folder / _OLD).exists():
            raise FormatError(
                f"{self.folder / _OLD} is of format 1, which this version of fedalpha does not read; resume the run "
                "with the version that wrote it, or name another folder in save="
            )
        self._history.forget()
        found = self._generations.load()
        if found is None:
            return None
        state, rounds, problems = found
        for problem in problems:
            log(WARNING, "fedalpha: %s; the generation before it is used (round %d)", problem, state["round"])
        self._rounds = list(rounds)
        metrics: dict[str, dict[int, Any]] = {name: {0: values} for name, values in state.pop("before").items()}
        for told in rounds:
            for name, values in told["metrics"].items():
                metrics.setdefault(name, {})[told["row"]["round"]] = values
        tree: dict[str, Any] = _restored(state)
        return tree | {"rows": [told["row"] for told in rounds], "metrics": metrics}

    def _is_new(self) -> bool:
        return self._generations.empty and not (self.folder / _OLD).exists()

    def _note(self, rows: list[dict[str, Any]], metrics: Mapping[str, Mapping[int, Any]]) -> None:
        """Add what is new to `_rounds`. The last round may have been evaluated since the last save."""
        del self._rounds[-1:]
        for row in rows[len(self._rounds) :]:
            told = {name: found[row["round"]] for name, found in metrics.items() if row["round"] in found}
            self._rounds.append({"row": row, "metrics": told})


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
            "or give the same settings to resume it"
        )


def _line(row: dict[str, Any]) -> bytes:
    return json.dumps(row, allow_nan=False).encode() + b"\n"


def _plain(value: Any) -> Any:
    """A value with each of Flower's array records as a dict of arrays."""
    match value:
        case ArrayRecord():
            return {_RECORD: {name: array.numpy() for name, array in value.items()}}
        case dict():
            return {key: _plain(inner) for key, inner in value.items()}
        case list():
            return [_plain(inner) for inner in value]
        case tuple():
            return tuple(_plain(inner) for inner in value)
    return value


def _restored(value: Any) -> Any:
    """The value that `_plain` was given."""
    match value:
        case dict() if _RECORD in value:
            return ArrayRecord({name: Array(array) for name, array in value[_RECORD].items()})
        case dict():
            return {key: _restored(inner) for key, inner in value.items()}
        case list():
            return [_restored(inner) for inner in value]
        case tuple():
            return tuple(_restored(inner) for inner in value)
    return value


def digest(arrays: Arrays) -> str:
    """The SHA-256 of names, dtypes, shapes and values."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        found.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        found.update(arrays[name].tobytes())
    return found.hexdigest()
