"""Softmax regression."""

from __future__ import annotations

import math
from collections import OrderedDict

from torch import nn

from fedalpha.models.base import MODELS, Model


@MODELS.register(formula="one linear layer; with cross-entropy: softmax regression (convex)")
class softmax(Model):
    """Softmax regression: one linear layer, a convex problem."""

    def layers(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(OrderedDict([("flatten", nn.Flatten()), ("output", nn.Linear(math.prod(shape), classes))]))
