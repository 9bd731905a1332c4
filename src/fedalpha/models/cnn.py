"""The paper's convolutional network."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from fedalpha.models.base import MODELS, Model


@MODELS.register(formula="conv 3×3 (32) → pool → conv 3×3 (64) → pool → linear", examples=("cnn", "cnn(hidden=1600)"))
class cnn(Model):
    """The paper's CNN: 34,826 parameters on 28×28 images; ``hidden`` adds a fully connected layer.

    Pooling comes before ReLU: the same function (both are monotone) on a quarter of the values.

    >>> sum(p.numel() for p in cnn().layers((1, 28, 28), 10).parameters())
    34826
    """

    hidden: int | None = None

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
