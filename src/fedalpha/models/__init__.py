"""*Models*: the paper's CNN, an MLP, softmax regression, or any ``nn.Module`` of the user's.

An *architecture* can build a module. The parameters travel apart from it, so a combine rule
may change the architecture between rounds. A new model is one file in this folder.
"""

from __future__ import annotations

from fedalpha.models.base import MODELS, Architecture, BuiltIn, Model, Parameters, Template
from fedalpha.models.cnn import cnn
from fedalpha.models.mlp import mlp
from fedalpha.models.parameters import fingerprint, initial, same_fingerprint
from fedalpha.models.softmax import softmax

__all__ = [
    "MODELS",
    "Architecture",
    "BuiltIn",
    "Model",
    "Parameters",
    "Template",
    "cnn",
    "fingerprint",
    "initial",
    "mlp",
    "same_fingerprint",
    "softmax",
]
