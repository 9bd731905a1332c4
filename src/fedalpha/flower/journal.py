"""The rows of a live federation and its run folder, which has the form of that of `fedalpha.run`.

A server app that is killed and started again continues from the folder; see `fedalpha.runs.folder`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from logging import WARNING
from pathlib import Path
from typing import Any

from flwr.supercore import log

from fedalpha.analysis.history import Best, History, Row
from fedalpha.flower.sums import Arrays
from fedalpha.round import ServerState
from fedalpha.runs.callbacks import Callback
from fedalpha.runs.folder import Folder
from fedalpha.store import FormatError

_OLD = "server.safetensors"
Restore = Callable[[dict[str, Any], ServerState], ServerState]


class Journal:
    """The rows of a run so far. With ``out`` the rows and the state after every round are stored in a run folder."""

    def __init__(self, out: str | Path | None, callbacks: Sequence[str | Callback] = ()) -> None:
        if not isinstance(out, str | Path | None):
            raise TypeError(f"out = {out!r}; give the path of a folder")
        if out is not None and Path(out).exists() and not Path(out).is_dir():
            raise ValueError(f"out = {str(out)!r} is a file; give a folder")
        self.out = None if out is None else Path(out).absolute()  # the log names it
        self.rows: list[Row] = []
        self.beside: dict[str, Any] = {}
        """What is saved beside the state of the round."""
        self._folder: Folder | None = None
        self.planned = 0
        """The number of rounds, if it is known."""
        self.stop = False
        """Whether a callback wants the run to stop."""
        self._callbacks = _parsed(callbacks)
        self._told = False

    @property
    def held(self) -> bool:
        """Whether this server has locked the folder."""
        return self._folder is not None

    def open(
        self, config: Mapping[str, Any], start: ServerState, begun: str, restore: Restore, new: bool = False
    ) -> ServerState | None:
        """Lock the folder until `close` or the end of the process. Returns the state in it, if there is one.

        Raises if the folder holds another run, or, with ``new``, if it holds finished rounds at all. ``begun`` is the
        `digest` of the arrays with which the run begins. If the stored run began with others, the difference is only
        logged, because an initial model that was not drawn from a seed differs at each start.
        """
        if self.out is None or self._folder is not None:
            return None
        if (self.out / _OLD).exists():
            raise FormatError(
                f"{self.out / _OLD} is of format 1, which this version of fedalpha does not read; resume the run "
                "with the version that wrote it, or name another folder in out="
            )
        folder = Folder(self.out, config, restore=restore)
        folder.__enter__()
        try:
            found = folder.resume(start)
            if new and found is not None and found[0].round:
                raise RuntimeError(
                    f"{self.out} holds finished rounds that this run would overwrite, because it was started without "
                    "loading them. Call resume(initial_arrays) first and start with the arrays that it returns, or "
                    "name another folder in out="
                )
            folder.on_start(0)
        except BaseException:
            folder.__exit__(None, None, None)
            raise
        self._folder = folder
        if found is None:
            folder.beside = {"begun": begun}
            return None
        self.rows, self.beside = list(found[1]), folder.beside
        if self.beside.get("begun") != begun:
            text = "fedalpha: initial_arrays differ from those with which the run in %s began; it is resumed"
            log(WARNING, text, self.out)
        return found[0]

    def write(self, row: Row, state: ServerState, beside: Mapping[str, Any]) -> None:
        """Add the row of a finished round, and save the state from which the next round starts."""
        self.tell_start()
        self.rows.append(row)
        if self._folder is not None:
            self._folder.beside |= beside
            try:
                self._folder.on_round(row, state)
            except TypeError as error:
                raise TypeError(f"{error}. Keep it in this form, or run without out=") from None
        stop = [callback.on_round(row, state) for callback in self._callbacks]
        self.stop = self.stop or any(stop)

    def tell_start(self) -> None:
        """Tell the callbacks that the run starts, or is resumed."""
        if self._told:
            return
        self._told = True
        for callback in self._callbacks:
            callback.on_start(self.planned)
            if self.rows and callback.on_resume(self.rows):
                self.stop = True

    def close(self, model: Mapping[str, Any] | None = None, complete: bool = False, best: Best | None = None) -> None:
        """Write the models and ``curves.png``, if there is a model, and unlock the folder."""
        folder, self._folder = self._folder, None
        history = History(self.rows, dict(model or {}), not complete, best)
        try:
            if folder is not None and model is not None:
                folder.on_end(history)
            for callback in self._callbacks if self._told else ():
                callback.on_end(history)
        finally:
            self._told = False
            if folder is not None:
                folder.__exit__(None, None, None)


def _parsed(callbacks: Sequence[str | Callback]) -> list[Callback]:
    if isinstance(callbacks, str | Callback):
        callbacks = [callbacks]
    if not isinstance(callbacks, Iterable):
        raise TypeError(f"callbacks = {callbacks!r}; give a list of callbacks, or of loggers' texts")
    if not callbacks:
        return []
    from fedalpha.runs.loggers import LOGGERS

    return [LOGGERS.parse(callback) for callback in callbacks]


def digest(arrays: Arrays) -> str:
    """The SHA-256 of names, dtypes, shapes and values."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        found.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        found.update(arrays[name].tobytes())
    return found.hexdigest()


def form_of(arrays: Arrays) -> str:
    """A short text of the names, shapes and dtypes of a model, to distinguish models."""
    form = "; ".join(f"{name} {array.dtype} {list(array.shape)}" for name, array in sorted(arrays.items()))
    values = sum(array.size for array in arrays.values())
    return f"{len(arrays)} arrays, {values} values, {hashlib.sha256(form.encode()).hexdigest()[:8]}"
