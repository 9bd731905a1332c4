"""What a model is: a rule that builds a module for the data's shape, and the registry of these rules."""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedalpha.text import Registry, Spelled

Parameters = dict[str, Tensor]
"""A state dict: parameters and buffers by name."""


class Architecture(ABC):
    """Something that can build a module."""

    @abstractmethod
    def build(self) -> nn.Module:
        """A new module; its parameters will be overwritten."""

    def trained(self) -> frozenset[str]:
        """The names of the trained parameters; the other tensors of a state dict are buffers."""
        with torch.device("meta"):  # draws nothing and takes no memory
            return frozenset(name for name, _ in self.build().named_parameters())


class Model(Spelled, ABC):
    """A built-in model, still without the data's shape and number of classes."""

    @abstractmethod
    def layers(self, shape: tuple[int, ...], classes: int) -> nn.Module: ...


MODELS: Registry[Model] = Registry("model", Model, package=__package__)  # type: ignore[type-abstract]


@dataclass(frozen=True)
class BuiltIn(Architecture):
    """A model of this library for data of a given shape; it can be saved as text."""

    model: Model
    shape: tuple[int, ...]
    classes: int

    def build(self) -> nn.Module:
        return self.model.layers(self.shape, self.classes)

    def with_model(self, model: Model) -> BuiltIn:
        return dataclasses.replace(self, model=model)


@dataclass(frozen=True, eq=False)
class Template(Architecture):
    """A user's own module, copied."""

    module: nn.Module

    def build(self) -> nn.Module:
        return copy.deepcopy(self.module)
