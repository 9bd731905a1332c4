"""The two models for contestants that use torch, layer for layer as a textbook writes them.

``fedalpha`` itself uses its own ``cnn``, which pools before ReLU: the same function and the same names.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch import nn


def build(model: str, pool_first: bool = False) -> nn.Sequential:
    """``cnn`` or ``softmax`` for images of 28 × 28 pixels and 10 classes."""
    if model == "softmax":
        return nn.Sequential(OrderedDict(flatten=nn.Flatten(), output=nn.Linear(784, 10)))
    stages: list[tuple[str, nn.Module]] = []
    for i, (before, after) in enumerate(((1, 32), (32, 64)), start=1):
        behind = [(f"relu{i}", nn.ReLU()), (f"pool{i}", nn.MaxPool2d(2))]
        stages += [(f"conv{i}", nn.Conv2d(before, after, 3)), *(behind[::-1] if pool_first else behind)]
    return nn.Sequential(OrderedDict([*stages, ("flatten", nn.Flatten()), ("output", nn.Linear(1600, 10))]))


def with_parameters(module: nn.Module, parameters: Any) -> nn.Module:
    """``module`` with arrays as its parameters."""
    module.load_state_dict({name: torch.as_tensor(value) for name, value in parameters.items()})
    return module


def arrays(module: nn.Module) -> dict[str, Any]:
    """The parameters of ``module`` as NumPy arrays."""
    return {name: value.detach().numpy() for name, value in module.state_dict().items()}
