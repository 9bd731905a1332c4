"""Models as tensors, for the rules that need torch: arrays are wrapped, not copied."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

import numpy as np
import torch
from torch import nn

from fedalpha.combine import Reports, Sum
from fedalpha.flower.reports import Report as Read
from fedalpha.flower.sums import Arrays, Running
from fedalpha.models import MODELS, Architecture, BuiltIn, Model, Parameters, Template, mlp, softmax
from fedalpha.round import ServerState
from fedalpha.runs.saved_state import restored
from fedalpha.update import Broadcast, Report


@dataclass(frozen=True)
class Named(Architecture):
    """An architecture for which only the names of the trained arrays are known."""

    names: frozenset[str]

    def build(self) -> nn.Module:
        raise ValueError("this rule looks inside the model: pass model= to FedAlpha, as to client_app")

    def trained(self) -> frozenset[str]:
        return self.names


class TorchForm:
    """Tensors that share their memory with the arrays of the messages."""

    def __init__(self, model: Any, buffers: Sequence[str]) -> None:
        self.model, self.buffers = model, buffers

    def broadcast(self, arrays: Arrays) -> Broadcast:
        return Broadcast(self._architecture(arrays), tensors(arrays))

    def changed(self, broadcast: Broadcast, arrays: Arrays) -> Broadcast:
        return dataclasses.replace(broadcast, parameters=tensors(arrays))

    def arrays(self, parameters: Parameters) -> Arrays:
        return {name: value.detach().cpu().numpy() for name, value in parameters.items()}

    def parameters(self, arrays: Arrays) -> Parameters:
        return tensors(arrays)

    def report(self, read: Read) -> Report:
        return Report(
            read.id,
            None if read.parameters is None else tensors(read.parameters),
            read.losses,
            read.steps,
            read.samples,  # type: ignore[arg-type]  # a size may be a fraction in other units
            tensors(read.extras),
            read.state,
            delay=read.delay,
            labels=read.labels,
            uploaded=read.uploaded,
        )

    def reports(self, items: Sequence[Report], running: Running | None) -> Reports:
        total = None if running is None else Sum(tensors(running.total()), running.heaviest)
        return Reports(items, total, final=True)

    def restore(self, tree: dict[str, Any], start: ServerState) -> ServerState:
        return restored(tree, start.broadcast.architecture)

    def _architecture(self, arrays: Arrays) -> Architecture:
        if self.model is None:
            floats = (name for name, value in arrays.items() if np.issubdtype(value.dtype, np.floating))
            return Named(frozenset(name for name in floats if not any(fnmatch(name, p) for p in self.buffers)))
        if isinstance(self.model, Architecture):
            return self.model
        if isinstance(self.model, str | Model):
            return _built_in(MODELS.parse(self.model), arrays)
        return Template(self.model if isinstance(self.model, nn.Module) else self.model())


def _built_in(model: Model, arrays: Arrays) -> BuiltIn:
    """A model of this library for the data that its arrays were made for."""
    first, last = next(iter(arrays.values())), list(arrays.values())[-1]
    if not isinstance(model, mlp | softmax) or first.ndim != 2:
        raise ValueError(f"model = {model}: the shape of its data is not known from its arrays; pass the module itself")
    found = BuiltIn(model, (first.shape[1],), len(last))
    with torch.device("meta"):
        expected = {name: tuple(value.shape) for name, value in found.build().state_dict().items()}
    if expected != {name: value.shape for name, value in arrays.items()}:
        raise ValueError(f"model = {model} has other arrays than initial_arrays; give the model from which they come")
    return found


def tensors(arrays: Arrays) -> Parameters:
    """Arrays as tensors, not copied. Some are read-only, which is sufficient because rules do not write to them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return {name: torch.from_numpy(np.asarray(value)) for name, value in arrays.items()}
