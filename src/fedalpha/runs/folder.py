"""The run folder: ``config.json``, ``history.jsonl``, ``model.safetensors``, ``curves.png``, ``checkpoint/``.

A run that keeps its best model writes it to ``best.safetensors``; the column ``best_round`` names its round.

Every row is in ``history.jsonl`` as soon as its round is over, so a folder is readable at any time.
A run is resumed from ``checkpoint/`` alone, which also holds the rows; ``history.jsonl`` is then rewritten
from there.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fedalpha.analysis.history import History, Row, model_bytes, read
from fedalpha.round import ServerState
from fedalpha.runs.callbacks import Callback
from fedalpha.runs.machine import versions
from fedalpha.store import FolderLock, Generations, LinkError, Most, write_atomically
from fedalpha.store.files import CONFIG_BYTES, append, own_size, read_bytes, remove, sweep
from fedalpha.text import shown

if TYPE_CHECKING:  # a Flower server with a plain mean writes the same folder without torch
    from fedalpha.models import Architecture

log = logging.getLogger(__name__)
RESUMED = "resumed_with"
"""In ``config.json``: the versions and processors on which the run was resumed, where they differ from the last."""

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
        self.restore = restore or _of_the_same_model
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

    def resume(self, start: ServerState) -> tuple[ServerState, list[Row]] | None:
        """The saved state of an interrupted run and its rows; ``start`` is the state before round 0 of the same run."""
        if self._stale:
            return None
        found = self.generations.load(self._most(start), lambda tree, rows: self._accepted(tree, rows, start))
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
        from fedalpha.analysis.plots import plot_run

        if not self._started or self._broken or not history.rows:
            return
        try:
            self._save()
            models = [history.model] + ([history.best.model] if history.best else [])
            contents = [model_bytes(model) for model in models]
            for name, content in zip(_MODELS, contents, strict=False):
                write_atomically(self.path / name, content)
            plot_run(history, self.path / "curves.png", title=str(self._described.get("strategy", "")))
            if not history.interrupted:
                digests = [hashlib.sha256(content).hexdigest() + "\n" for content in contents]
                write_atomically(self._finished, "".join(digests).encode(), self.path)
        except OSError as error:
            raise self._cannot("write the results to", error) from error

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

    def _accepted(self, tree: Any, rows: list[Row], start: ServerState) -> ServerState:
        """The state of a checkpoint if it can be one of the run that begins at ``start``; else an error is raised."""
        beside = tree.pop("beside", {})
        state = self.restore(tree, start)
        rounds = [row["round"] for row in rows]
        if not rounds or any(type(r) is not int for r in rounds) or sorted(set(rounds)) != rounds:
            raise ValueError("its rows are not those of its rounds")
        _alike(dataclasses.replace(state, broadcast=None), dataclasses.replace(start, broadcast=None), "state")
        found, expected = ({k: (v.shape, v.dtype) for k, v in p.items()} for p in _models(state, start))
        if found != expected:
            raise ValueError("its model has other parameters than the run's")
        self.beside = beside
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
            if (self.path / "history.jsonl").exists() or self.generations.folder.exists():
                raise ValueError(f"{self.path} holds a run without config.json; choose another folder or remove it")
            if (kind := other_kind(self.path)) is not None:
                raise ValueError(f"{self.path} holds a {kind}; choose another folder for a single run")
            return
        try:
            stored = json.loads(read_bytes(path, most=CONFIG_BYTES))
            stored_versions, resumed = stored.pop("versions", {}), stored.pop(RESUMED, [])
            if not isinstance(stored_versions, dict) or not all(isinstance(m, dict) for m in resumed):
                raise ValueError
        except LinkError:
            raise
        except (ValueError, AttributeError, TypeError, RecursionError):
            raise ValueError(f"{path} is not a configuration; choose another folder or remove this one") from None
        there, ours = _comparable(stored, json.loads(json.dumps(self._described)))
        if changes := differences(there, ours):
            if self._empty():  # nothing worth keeping; it is replaced when the new run starts
                self._stale = True
                return
            self._longer = _longer(there, ours)
            if not self._longer:
                raise ValueError(
                    f"{self.path} holds a run of another configuration: {'; '.join(changes)}. Choose another folder, "
                    "or give the same settings to resume it (the number of rounds may be larger)"
                )
            stored = {**self._described}
        machines = [*resumed]
        if changes := differences((resumed or [stored_versions])[-1], versions()):
            machines.append(versions())
            log.warning(
                "%s was run so far on another machine or with other versions: %s; the run is resumed, but its last "
                "bits may differ from those of an undisturbed run",
                self.path,
                "; ".join(changes),
            )
        if self._longer or changes:
            since = {RESUMED: machines} if machines else {}
            self._rewritten = {**stored, "versions": stored_versions, **since}


def _longer(stored: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    """Whether ours is the stored run with more rounds."""
    before, now = (config.get("rounds") for config in (stored, ours))
    if not isinstance(before, int) or not isinstance(now, int):
        return False
    return before < now and not differences({**stored, "rounds": now}, ours)


def _comparable(stored: dict[str, Any], ours: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two configurations in the same form.

    A run that was started in Python describes itself in more detail; if it can be written as settings, these stand
    under ``settings``. A plugin is compared by the hash of its content, wherever it lies.
    """
    detailed = all("initial_model" in config for config in (stored, ours))
    texts = [config.get("settings") for config in (stored, ours)]
    both = [{name: value for name, value in config.items() if name != "settings"} for config in (stored, ours)]
    if detailed:
        if _same(both[0]["initial_model"], both[1]["initial_model"]):
            both[0]["initial_model"] = both[1]["initial_model"]
        return both[0], both[1]
    for place, found in enumerate(texts):
        if isinstance(found, dict) and "initial_model" in both[place]:  # the other one is of the command line
            both[place], both[1 - place] = found, {name: both[1 - place].get(name) for name in found}
    plugins = [{"plugin": str(one["plugin"]).rpartition("@")[2]} if one.get("plugin") else {} for one in both]
    return {**both[0], **plugins[0]}, {**both[1], **plugins[1]}


def other_kind(path: Path) -> str | None:
    """What a folder without a run of its own holds: a comparison, a study, or nothing known."""
    if (path / "study.json").exists():
        return "study"
    inside = (path / "comparison.json").exists() or any(path.glob("*/config.json"))
    return "comparison" if inside else None


def _line(row: Row) -> bytes:
    return (json.dumps(row, allow_nan=False) + "\n").encode()


def _models(state: ServerState, start: ServerState) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The parameters of a saved state, and those that they must be like."""
    sent, begun = state.broadcast, start.broadcast
    architecture: Any = getattr(sent, "architecture", None)
    if architecture is getattr(begun, "architecture", None):
        return sent.parameters, begun.parameters
    import torch

    with torch.device("meta"):  # without memory: the text of the architecture is part of the checkpoint
        return sent.parameters, architecture.build().state_dict()


def _alike(found: Any, start: Any, where: str) -> None:
    """Raise an error if a saved value is not of the kind that it has at the start of the run."""
    if dataclasses.is_dataclass(start) and not isinstance(start, type):
        found, start = vars(found), vars(start)
    if isinstance(start, Mapping):
        for key, value in start.items():
            if not isinstance(found, Mapping) or key not in found:
                raise ValueError(f"{where} has no {key!r}")
            _alike(found[key], value, f"{where}.{key}")
    elif isinstance(start, list) and start:
        if not isinstance(found, list) or len(found) != len(start):
            raise ValueError(f"{where} is not a list of {len(start)}")
        for i, (one, other) in enumerate(zip(found, start, strict=True)):
            _alike(one, other, f"{where}[{i}]")
    elif start is not None and isinstance(found, Mapping | list | str) != isinstance(start, Mapping | list | str):
        raise ValueError(f"{where} is of another kind")


def _of_round_0(line: bytes) -> bool:
    """Whether a line of ``history.jsonl`` is the row of the initial model; one that cannot be read is not."""
    try:
        return bool(json.loads(line)["round"] == 0)
    except (ValueError, TypeError, KeyError):
        return False


def differences(stored: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """What differs, key by key.

    >>> differences({"seed": 0, "lr": 0.1}, {"seed": 1, "lr": 0.1})
    ['seed is 0 there and 1 here']
    """
    keys = [*stored, *(k for k in ours if k not in stored)]
    return [
        f"{shown(key)} is {shown(stored.get(key, 'not set'))} there and {shown(ours.get(key, 'not set'))} here"
        for key in keys
        if stored.get(key) != ours.get(key)
    ]


def _same(stored: object, ours: object) -> bool:
    from fedalpha.models import same_fingerprint

    return same_fingerprint(stored, ours)


def _of_the_same_model(tree: dict[str, Any], start: ServerState) -> ServerState:
    return restored(tree, start.broadcast.architecture)


def state_tree(state: ServerState) -> dict[str, Any]:
    """A server state as a tree; a built-in architecture as its text, a user's module as nothing."""
    tree = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
    if not state.watch:
        del tree["watch"]
    architecture = getattr(state.broadcast, "architecture", None)
    text = None
    if architecture is not None:
        from fedalpha.models import BuiltIn

        if isinstance(architecture, BuiltIn):
            text = (str(architecture.model), architecture.shape, architecture.classes)
    tree["broadcast"] = {
        "architecture": text,
        "parameters": state.broadcast.parameters,
        "extras": state.broadcast.extras,
    }
    return tree


def restored(tree: dict[str, Any], given: Architecture | None = None) -> ServerState:
    """The server state of a tree; ``given`` is the architecture if it is not a built-in one."""
    from fedalpha.models import MODELS, BuiltIn
    from fedalpha.update import Broadcast

    sent = tree.pop("broadcast")
    architecture = given
    if sent["architecture"] is not None:
        text, shape, classes = sent["architecture"]
        saved = BuiltIn(MODELS.parse(text), shape, classes)
        architecture = given if saved == given else saved
    if architecture is None:
        raise ValueError("this state is of a module of your own; pass its architecture")
    return ServerState(broadcast=Broadcast(architecture, sent["parameters"], sent["extras"]), **tree)
