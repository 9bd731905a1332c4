"""LeNet-5's shape with ReLU: the small network of many federated comparisons on 32 × 32 colour."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from fedalpha.models.base import MODELS, Model


@MODELS.register(
    formula="conv 5×5 (6) → pool → conv 5×5 (16) → pool → 120 → 84 → linear",
    reference="LeCun et al., 1998; Li, Diao, Chen, He, 2022, 2102.02079",
)
class lenet(Model):
    """LeNet-5 with ReLU and max-pooling: 62,006 parameters on 32×32 colour pictures.

    >>> sum(p.numel() for p in lenet().layers((3, 32, 32), 10).parameters())
    62006
    """

    def layers(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        if len(shape) != 3 or min(shape[1:]) < 16:
            raise ValueError(
                f"lenet needs images of at least 16×16 pixels, this data has shape {shape}; use mlp instead"
            )
        height, width = (((s - 4) // 2 - 4) // 2 for s in shape[1:])
        stages: list[tuple[str, nn.Module]] = [
            ("conv1", nn.Conv2d(shape[0], 6, 5)),
            ("pool1", nn.MaxPool2d(2)),
            ("relu1", nn.ReLU()),
            ("conv2", nn.Conv2d(6, 16, 5)),
            ("pool2", nn.MaxPool2d(2)),
            ("relu2", nn.ReLU()),
            ("flatten", nn.Flatten()),
            ("layer1", nn.Linear(16 * height * width, 120)),
            ("relu3", nn.ReLU()),
            ("layer2", nn.Linear(120, 84)),
            ("relu4", nn.ReLU()),
            ("output", nn.Linear(84, classes)),
        ]
        return nn.Sequential(OrderedDict(stages))
