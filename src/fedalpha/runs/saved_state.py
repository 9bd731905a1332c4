"""The state of a server as it is saved: a tree of values, and the checks of one that was read."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedalpha.analysis.columns import check_numbers
from fedalpha.round import ServerState, buffered

if TYPE_CHECKING:  # a Flower server with a plain mean saves its state without torch
    from fedalpha.models import Architecture


def state_tree(state: ServerState) -> dict[str, Any]:
    """A server state as a tree; a built-in architecture as its text, a user's module as nothing."""
    tree = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
    for name in ("watch", "clock"):
        if not tree[name]:
            del tree[name]
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


def of_the_same_model(tree: dict[str, Any], start: ServerState) -> ServerState:
    return restored(tree, start.broadcast.architecture)


def check_state(
    state: ServerState, start: ServerState, rows: Sequence[Mapping[str, Any]], clients: int | None = None
) -> None:
    """Raise ValueError if a saved state and its rows cannot be those of the run that begins at ``start``.

    Its checksums show that it is whole, not who wrote it. ``clients``: how many there are, None where that is not
    known (a live federation).
    """
    if type(state.round) is not int or state.round < 0:
        raise ValueError("its round is not a number of rounds")
    _check_rows(rows)
    if clients is not None and rows[-1]["round"] != state.round:  # a wrapper of Flower may skip rounds
        raise ValueError(f"its rows end at round {rows[-1]['round']}, and its state is that after {state.round}")
    if (best := state.watch.get("best")) is not None:
        last = len(rows) - 1 if clients is not None else state.round
        if type(best["round"]) is not int or not 0 <= best["round"] <= last:
            raise ValueError("its best model is of a round that was not played")
        form(best["model"])
    _alike(dataclasses.replace(state, broadcast=None), dataclasses.replace(start, broadcast=None), "state")
    found, expected = (form(parameters) for parameters in _models(state, start))
    if found != expected:
        raise ValueError("its model has other parameters than the run's")
    for id, kept in state.clients.items():
        whole = isinstance(id, int | np.integer) and not isinstance(id, bool)
        if not whole or id < 0 or (clients is not None and id >= clients) or not isinstance(kept, Mapping):
            raise ValueError("it holds states of clients that are not in the run")
    _check_extras(state.broadcast.extras, expected)
    if clients is not None:
        _check_clock(state, start, expected, clients)


def form(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The shape and the dtype of every parameter."""
    return {name: (value.shape, value.dtype) for name, value in parameters.items()}


def _check_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    rounds = [row["round"] for row in rows]
    if not rounds or any(type(r) is not int for r in rounds) or sorted(set(rounds)) != rounds:
        raise ValueError("its rows do not match its rounds")
    json.dumps(rows, allow_nan=False)  # no row of a run holds NaN: history.jsonl could not
    check_numbers(rows)


def _check_extras(extras: Any, expected: Mapping[str, Any]) -> None:
    """Extras go with the model, each to a parameter; a rule of the user's own may send others, but no other values."""
    arrays = {isinstance(dtype, np.dtype) for _, dtype in expected.values()}  # of NumPy, not tensors
    for name, (_, dtype) in form(extras).items():
        if not isinstance(name, str) or isinstance(dtype, np.dtype) not in arrays:
            raise ValueError("what its model is sent with are not arrays like those of the model")


def _check_clock(state: ServerState, start: ServerState, expected: Mapping[str, Any], clients: int) -> None:
    if state.clock.keys() != start.clock.keys():
        raise ValueError("its clock is not that of the run")
    if "time" in state.clock and not buffered.finite(state.clock["time"]):
        raise ValueError("its time is not a number of seconds")
    if "flights" not in state.clock:
        return
    buffered.check(state.clock, state.round, clients)
    current = form(state.broadcast.extras)
    for sent in state.clock["versions"].values():
        if sent.keys() != {"parameters", "extras"} or form(sent["parameters"]) != expected:
            raise ValueError("a version that clients train from has other parameters than the run's model")
        if any(current.get(name) != about for name, about in form(sent["extras"]).items()):
            raise ValueError("a version that clients train from was sent with other extras than the run's model")


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
    if start is not None and _kind(found) != _kind(start):
        raise ValueError(f"{where} is of another kind")
    if isinstance(start, Mapping):
        for key, value in start.items():
            if key not in found:
                raise ValueError(f"{where} has no {key!r}")
            _alike(found[key], value, f"{where}.{key}")
    elif isinstance(start, list) and start:
        if len(found) != len(start):
            raise ValueError(f"{where} is not a list of {len(start)}")
        for i, (one, other) in enumerate(zip(found, start, strict=True)):
            _alike(one, other, f"{where}[{i}]")


def _kind(value: object) -> str:
    """Whether a value of a state is a mapping, a list, a tuple or a text; any other may become one of another kind."""
    return next((kind.__name__ for kind in (Mapping, list, tuple, str) if isinstance(value, kind)), "value")
