"""One hidden layer with tanh."""

import math
from collections import OrderedDict

from torch import nn

from fedalpha.models import MODELS, Model


@MODELS.register(formula="linear → tanh → linear")
class tanh_net(Model):
    """A network with one hidden layer of ``hidden`` units."""

    hidden: int = 16

    def layers(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        inner, output = nn.Linear(math.prod(shape), self.hidden), nn.Linear(self.hidden, classes)
        stages: list[tuple[str, nn.Module]] = [("flatten", nn.Flatten()), ("inner", inner), ("tanh", nn.Tanh())]
        return nn.Sequential(OrderedDict([*stages, ("output", output)]))
