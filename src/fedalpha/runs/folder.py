"""The run folder: ``config.json``, ``history.jsonl``, ``model.safetensors``, ``curves.png``, ``checkpoint/``.

A run that keeps its best model writes it to ``best.safetensors``; the column ``best_round`` names its round.

Every row is in ``history.jsonl`` as soon as its round is over, so a folder is readable at any time.
A run is resumed from ``checkpoint/`` alone, which also holds the rows; ``history.jsonl`` is then rewritten
from there.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

from fedalpha.analysis.history import History, Row, model_bytes, read
from fedalpha.round import ServerState
from fedalpha.runs.callbacks import Callback
from fedalpha.runs.config import RESUMED, comparable, differences, is_longer, read_config
from fedalpha.runs.machine import versions
from fedalpha.runs.saved_state import check_state, of_the_same_model, state_tree
from fedalpha.store import FolderLock, Generations, Most, write_atomically
from fedalpha.store.files import append, own_size, read_bytes, remove, sweep
from fedalpha.store.kinds import COMPARISON, RUNS, STUDY, check_kind

log = logging.getLogger(__name__)
_MODELS = ("model.safetensors", "best.safetensors")
"""The last model, and the best one if the run keeps it."""


class Folder(Callback):
    """Writes a run folder and resumes an interrupted run. As a context manager it locks the folder.

    A run with the same configuration is resumed. With more rounds it is lengthened, to the bytes of a run that had them
    from the start. A folder of another configuration is refused with the differences, unless no round was played there:
    then the new run replaces it when it starts.
    ``config`` describes the run (by default all arguments of `fedalpha.run`). ``every``: save the state every so
    many rounds (and at the end). ``restore(tree, start)`` makes a state of what was saved.
    """

    def __init__(
        self,
        path: str | Path,
        config: Mapping[str, Any] | None = None,
        every: int = 1,
        restore: Callable[[dict[str, Any], ServerState], ServerState] | None = None,
    ) -> None:
        if every < 1:
            raise ValueError(f"checkpoint_every = {every}; give a number of rounds ≥ 1")
        self.path = Path(path)
        self.config = config
        self.every = every
        self.restore = restore or of_the_same_model
        self.generations = Generations(self.path / "checkpoint")
        self._finished = self.path / "checkpoint" / "finished"
        self._rows: list[Row] = []
        self._state: ServerState | None = None
        self._saved = -1
        self._started = False
        self._stack = ExitStack()
        self._broken = False
        self._stale = False
        self.beside: dict[str, Any] = {}
        """What is saved beside the state; a resumed run finds it here."""
        self._longer = False
        self._rewritten: Mapping[str, Any] | None = None
        """the configuration with more rounds, or with another machine that resumes the run"""

    def lengthened(self, rounds: int) -> Folder:
        """The same folder for the same run with this number of rounds."""
        config = {**self._described, "rounds": rounds}
        if isinstance(found := config.get("settings"), dict):
            config["settings"] = {**found, "rounds": rounds}
        return Folder(self.path, config, self.every, self.restore)

    @property
    def _described(self) -> Mapping[str, Any]:
        assert self.config is not None, "a run describes itself before it opens its folder"
        return self.config

    def __enter__(self) -> Folder:
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{self.path} is a file; give a folder to --out")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._stack.enter_context(FolderLock(self.path))
        except OSError as error:
            raise self._cannot("write to", error) from error
        try:
            self._check_config()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def finished(self) -> History | None:
        """The history, if the run in this folder is finished and its model is intact."""
        if self._stale or self._longer:
            return None
        try:
            digests = read_bytes(self._finished, self.path, most=2**10).decode().split()
            models = [read_bytes(self.path / name) for name in _MODELS[: len(digests)]]
        except (OSError, ValueError):
            return None
        if not digests or [hashlib.sha256(content).hexdigest() for content in models] != digests:
            return None
        try:
            return read(self.path)
        except ValueError as error:  # the checkpoint has the rows too
            log.warning("%s", error)
            return None

    def resume(self, start: ServerState, clients: int | None = None) -> tuple[ServerState, list[Row]] | None:
        """The saved state of an interrupted run and its rows.

        ``start`` is the state before round 0 of the same run, ``clients`` how many it has, if that is known.
        """
        if self._stale:
            return None
        found = self.generations.load(self._most(start), lambda tree, rows: self._accepted(tree, rows, start, clients))
        if found is None:
            return None
        state, rows, problems = found
        for problem in problems:
            log.warning("%s; resuming from round %d", problem, rows[-1]["round"])
        self._rows, self._state, self._saved = list(rows), state, state.round
        return state, rows

    def on_start(self, rounds: int) -> None:
        try:
            sweep(self.path)
            remove(self._finished, self.path)
            if self._stale:  # before config.json is written, which must never describe another run's checkpoint
                self.generations.clear()
                remove(self.path / "best.safetensors", self.path)
            config = self._rewritten
            if self._stale or own_size(self.path / "config.json") is None:
                config = {**self._described, "versions": versions()}
            if config is not None:
                write_atomically(self.path / "config.json", (json.dumps(config, indent=2) + "\n").encode())
            write_atomically(self.path / "history.jsonl", b"".join(map(_line, self._rows)))
            self._started = True
        except OSError as error:
            raise self._cannot("write to", error) from error

    def on_round(self, row: Row, state: ServerState) -> bool | None:
        self._rows.append(row)
        self._state = state
        try:
            append(self.path / "history.jsonl", _line(row))
            if state.round % self.every == 0:
                self._save()
        except OSError as error:
            raise self._cannot(f"save round {state.round} in", error) from error
        return None

    def on_end(self, history: History) -> None:
        if not self._started or self._broken or not history.rows:
            return
        try:
            self._save()
            models = [history.model] + ([history.best.model] if history.best else [])
            contents = [model_bytes(model) for model in models]
            for name, content in zip(_MODELS, contents, strict=False):
                write_atomically(self.path / name, content)
            self._draw(history)
            if not history.interrupted:
                digests = [hashlib.sha256(content).hexdigest() + "\n" for content in contents]
                write_atomically(self._finished, "".join(digests).encode(), self.path)
        except OSError as error:
            raise self._cannot("write the results to", error) from error

    def _draw(self, history: History) -> None:
        if find_spec("matplotlib") is None:  # a live server needs little more than NumPy
            log.warning("curves.png is not drawn: install matplotlib, or run fedalpha report where it is installed")
            return
        from fedalpha.analysis.plots import plot_run

        plot_run(history, self.path / "curves.png", title=str(self._described.get("strategy", "")))

    def _save(self) -> None:
        if self._state is not None and self._state.round > self._saved:
            beside = {"beside": self.beside} if self.beside else {}
            self.generations.save(self._state.round, state_tree(self._state) | beside, self._rows)
            self._saved = self._state.round

    def _cannot(self, what: str, error: OSError) -> OSError:
        """The same error with what is safe and what to do. Nothing is written after it."""
        self._broken = True
        kept = f"; the state after round {self._saved} is safe there" if self._saved >= 0 else ""
        return OSError(
            f"cannot {what} {self.path}: {error.strerror or error}{kept}. "
            "Make the folder writable or free some space, then run the same command again"
        )

    def _accepted(self, tree: Any, rows: list[Row], start: ServerState, clients: int | None) -> ServerState:
        """The state of a checkpoint if it can be one of the run that begins at ``start``; else an error is raised."""
        beside = tree.pop("beside", {})
        state = self.restore(tree, start)
        check_state(state, start, rows, clients)
        self.beside = dict(beside)
        return state

    def _most(self, start: ServerState) -> Most:
        """What the checkpoint of this run can need: a client's state may hold models, and a row numbers of clients."""
        config = json.loads(json.dumps(self._described))
        if "rounds" not in config:  # a live federation: neither its clients nor its rounds are known beforehand
            return Most()
        described = config.get("federation", config)  # of `fedalpha.run`, or of the command line
        clients, rounds = int(described.get("clients") or 1), int(config.get("rounds") or 0)
        model = sum(tensor.nbytes for tensor in start.broadcast.parameters.values())
        return Most(state=2**27 + 16 * (clients + 1) * model, rows=rounds + 1, row=2**20 + 2**12 * clients)

    def _empty(self) -> bool:
        """Whether no round has been played in this folder, by its checkpoint and by its rows."""
        found = self.generations.load()
        rows = self.path / "history.jsonl"
        lines = read_bytes(rows).split(b"\n")[:-1] if own_size(rows) is not None else []  # the last one may be cut off
        return (found is None or found[1][-1]["round"] == 0) and all(_of_round_0(line) for line in lines)

    def _check_config(self) -> None:
        path = self.path / "config.json"
        if not path.is_symlink() and not path.exists():
            self._check_vacant()
            return
        stored, stored_versions, machines = read_config(path)
        there, ours = comparable(stored, json.loads(json.dumps(self._described)))
        if changes := differences(there, ours):
            if self._empty():  # nothing worth keeping; it is replaced when the new run starts
                if not stored_versions:
                    raise ValueError(f"{path} is a file of another program; choose another folder or remove the file")
                self._stale = True
                return
            self._longer = is_longer(there, ours)
            if not self._longer:
                raise ValueError(
                    f"{self.path} holds a run of another configuration: {'; '.join(changes)}. Choose another folder, "
                    "or give the same settings to resume it (the number of rounds may be larger)"
                )
            stored = {**self._described}
        if changes := differences((machines or [stored_versions])[-1], versions()):
            machines.append(versions())
            log.warning(
                "%s was run so far on another machine or with other versions: %s; the run is resumed, but its last "
                "bits may differ from those of an uninterrupted run",
                self.path,
                "; ".join(changes),
            )
        if self._longer or changes:
            since = {RESUMED: machines} if machines else {}
            self._rewritten = {**stored, "versions": stored_versions, **since}

    def _check_vacant(self) -> None:
        """Raise if a folder without ``config.json`` holds something else."""
        if (self.path / "history.jsonl").exists() or self.generations.folder.exists():
            raise ValueError(f"{self.path} holds a run without config.json; choose another folder or remove it")
        if model := next((name for name in _MODELS if (self.path / name).exists()), None):
            raise ValueError(f"{self.path} holds a {model} of something else; choose another folder or move the file")
        check_kind(self.path, "a single run", STUDY, COMPARISON, RUNS)


def _line(row: Row) -> bytes:
    return (json.dumps(row, allow_nan=False) + "\n").encode()


def _of_round_0(line: bytes) -> bool:
    """Whether a line of ``history.jsonl`` is the row of the initial model; one that cannot be read is not."""
    try:
        return bool(json.loads(line)["round"] == 0)
    except (ValueError, TypeError, KeyError):
        return False
