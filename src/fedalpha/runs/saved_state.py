"""The state of a server as it is saved: a tree of values, and the checks of one that was read."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedalpha.round import ServerState

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


def check_state(state: ServerState, start: ServerState) -> None:
    """Raise ValueError if a saved state cannot be one of the run that begins at ``start``."""
    _alike(dataclasses.replace(state, broadcast=None), dataclasses.replace(start, broadcast=None), "state")
    found, expected = ({k: (v.shape, v.dtype) for k, v in p.items()} for p in _models(state, start))
    if found != expected:
        raise ValueError("its model has other parameters than the run's")
    for sent in state.clock.get("versions", {}).values():
        if {k: (v.shape, v.dtype) for k, v in sent["parameters"].items()} != expected:
            raise ValueError("a version that clients train from has other parameters than the run's model")


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
