"""Models: the paper's CNN, an MLP, softmax regression, or any ``nn.Module`` of the user's.

An *architecture* can build a module; the parameters travel apart from it, so a combine rule
may change the architecture between rounds.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

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


class Model(Spelled, ABC):
    """A built-in model, still without the data's shape and number of classes."""

    @abstractmethod
    def layers(self, shape: tuple[int, ...], classes: int) -> nn.Module: ...


MODELS: Registry[Model] = Registry("model", Model)  # type: ignore[type-abstract]


@MODELS.register(formula="conv 3×3 (32) → pool → conv 3×3 (64) → pool → linear", examples=("cnn", "cnn(hidden=1600)"))
@dataclass(frozen=True, eq=False, repr=False)
class cnn(Model):  # noqa: N801 - written in lower case on the command line
    """The paper's CNN: 34,826 parameters on 28×28 images; ``hidden`` adds a fully connected layer.

    Pooling comes before ReLU: the same function (both are monotone) on a quarter of the values.

    >>> sum(p.numel() for p in cnn().layers((1, 28, 28), 10).parameters())
    34826
    """

    hidden: int | None = None

    text_name: ClassVar[str] = "cnn"

    def layers(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        if len(shape) != 3 or min(shape[1:]) < 10:
            raise ValueError(
                f"cnn needs images of at least 10×10 pixels, this data has shape {shape}; use mlp or softmax instead"
            )
        height, width = (((s - 2) // 2 - 2) // 2 for s in shape[1:])
        stages: list[tuple[str, nn.Module]] = [
            ("conv1", nn.Conv2d(shape[0], 32, 3)),
            ("pool1", nn.MaxPool2d(2)),
            ("relu1", nn.ReLU()),
            ("conv2", nn.Conv2d(32, 64, 3)),
            ("pool2", nn.MaxPool2d(2)),
            ("relu2", nn.ReLU()),
            ("flatten", nn.Flatten()),
        ]
        features = 64 * height * width
        if self.hidden is not None:
            stages += [("hidden", nn.Linear(features, self.hidden)), ("relu3", nn.ReLU())]
            features = self.hidden
        return nn.Sequential(OrderedDict([*stages, ("output", nn.Linear(features, classes))]))


@MODELS.register(formula="linear → ReLU → … → linear", examples=("mlp", "mlp(hidden=[200, 100])"))
@dataclass(frozen=True, eq=False, repr=False)
class mlp(Model):  # noqa: N801
    """A fully connected network with ReLU; ``hidden`` lists the widths."""

    hidden: int | Sequence[int] = (64,)

    text_name: ClassVar[str] = "mlp"

    def __post_init__(self) -> None:
        widths = (self.hidden,) if isinstance(self.hidden, int) else tuple(self.hidden)
        if not widths or any(isinstance(w, bool) or not isinstance(w, int) or w < 1 for w in widths):
            raise ValueError(f"mlp: hidden = {self.hidden!r}; give a width or a list of widths, such as [200, 100]")
        object.__setattr__(self, "hidden", widths)

    def layers(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        assert isinstance(self.hidden, tuple)
        widths = (math.prod(shape), *self.hidden)
        stages: list[tuple[str, nn.Module]] = [("flatten", nn.Flatten())]
        for i, (a, b) in enumerate(pairwise(widths), start=1):
            stages += [(f"layer{i}", nn.Linear(a, b)), (f"relu{i}", nn.ReLU())]
        return nn.Sequential(OrderedDict([*stages, ("output", nn.Linear(widths[-1], classes))]))


@MODELS.register(formula="one linear layer; with cross-entropy: softmax regression (convex)")
@dataclass(frozen=True, eq=False, repr=False)
class softmax(Model):  # noqa: N801
    """Softmax regression: one linear layer, a convex problem."""

    text_name: ClassVar[str] = "softmax"

    def layers(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(OrderedDict([("flatten", nn.Flatten()), ("output", nn.Linear(math.prod(shape), classes))]))


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


def initial(
    model: str | Model | nn.Module | Callable[[], nn.Module], shape: tuple[int, ...], classes: int, seed: int
) -> tuple[Architecture, Parameters]:
    """The architecture and w_0; what is drawn comes from ``seed`` and leaves torch's global generator alone.

    A module that the user has built starts from its own parameters; a text or a function that
    returns a module is initialised under the seed. The parameters are contiguous, whichever layout the module has.
    """
    if isinstance(model, nn.Module):
        architecture: Architecture = Template(copy.deepcopy(model))
        module: nn.Module = model
    else:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if isinstance(model, str | Model):
                architecture = BuiltIn(MODELS.parse(model), tuple(shape), classes)
                module = architecture.build()
            else:
                module = model()
                if not isinstance(module, nn.Module):
                    raise TypeError(
                        f"model() returned {type(module).__name__}; give an nn.Module or a function that returns one"
                    )
                architecture = Template(module)
    plain = torch.contiguous_format
    found = module.state_dict().items()
    return architecture, {name: value.detach().cpu().clone(memory_format=plain) for name, value in found}
