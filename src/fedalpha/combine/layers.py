"""A multi-layer perceptron's state dict as a list of (weight, bias), for rules that change its widths."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, from_numpy

from fedalpha.models import BuiltIn, Parameters, mlp
from fedalpha.update import Broadcast

Matrix = NDArray[np.float64]
Layer = tuple[Matrix, Matrix]
"""weight (out × in) and bias (out), in float64."""
WIDTHS_CHANGE = "the width of the model changes from one version to the next, so an update cannot be rebased"
"""Why rules that use these layers do not work with stale updates."""


def layers(owner: str, broadcast: Broadcast, parameters: Parameters) -> list[Layer]:
    """The layers of a client's perceptron; raises ValueError for other architectures."""
    architecture = broadcast.architecture
    if not isinstance(architecture, BuiltIn) or not isinstance(architecture.model, mlp):
        raise ValueError(f"{owner} works on fully connected networks whose widths may change; use model mlp(hidden=…)")
    return [(_wide(parameters[f"{n}.weight"]), _wide(parameters[f"{n}.bias"])) for n in _names(architecture)]


def rebuilt(broadcast: Broadcast, found: list[Layer]) -> Broadcast:
    """A broadcast with these layers, and with a new architecture if a width has changed."""
    architecture = broadcast.architecture
    assert isinstance(architecture, BuiltIn)
    assert isinstance(architecture.model, mlp)
    widths = tuple(len(bias) for _, bias in found[:-1])
    parameters: Parameters = {}
    for name, (weight, bias) in zip(_names(architecture), found, strict=True):
        old = broadcast.parameters[f"{name}.weight"].dtype
        parameters[f"{name}.weight"] = from_numpy(weight.copy()).to(old)
        parameters[f"{name}.bias"] = from_numpy(bias.copy()).to(old)
    if widths != architecture.model.hidden:
        architecture = architecture.with_model(mlp(hidden=widths))
    return dataclasses.replace(broadcast, architecture=architecture, parameters=parameters)


def _names(architecture: BuiltIn) -> list[str]:
    hidden = architecture.model.hidden  # type: ignore[attr-defined]
    return [*(f"layer{i + 1}" for i in range(len(hidden))), "output"]


def _wide(value: Tensor) -> Matrix:
    return value.double().numpy()
