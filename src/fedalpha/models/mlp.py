"""A fully connected network."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from fedalpha.models.base import MODELS, Model


@MODELS.register(formula="linear → ReLU → … → linear", examples=("mlp", "mlp(hidden=[200, 100])"))
class mlp(Model):
    """A fully connected network with ReLU; ``hidden`` lists the widths."""

    hidden: int | Sequence[int] = (64,)

    def __post_init__(self) -> None:
        widths = tuple(self.hidden) if isinstance(self.hidden, Sequence) else (self.hidden,)
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
