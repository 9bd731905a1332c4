"""The initial parameters w_0 of a model, and a fingerprint that recognises them."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import nn

from fedalpha.models.base import MODELS, Architecture, BuiltIn, Model, Parameters, Template


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
                try:
                    module = model()
                except TypeError as error:
                    raise TypeError(
                        f"the model cannot be made: {error}; give a name such as 'mlp', an nn.Module, or a function "
                        "without arguments that returns one (lambda: nn.Linear(64, 10))"
                    ) from error
                if not isinstance(module, nn.Module):
                    raise TypeError(
                        f"model() returned {type(module).__name__}; give an nn.Module or a function that returns one"
                    )
                architecture = Template(module)
    plain = torch.contiguous_format
    found = module.state_dict().items()
    return architecture, {name: value.detach().cpu().clone(memory_format=plain) for name, value in found}


def fingerprint(parameters: Parameters) -> list[float]:
    """Eight sums over a model. They identify it even if another processor drew it with different last bits.

    >>> fingerprint({"w": torch.ones(2, 8), "b": torch.ones(1)})
    [4.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]
    """
    sums = torch.zeros(8, dtype=torch.float64)
    for place, value in enumerate(parameters.values(), start=1):
        flat = value.detach().double().flatten()
        sums += place * nn.functional.pad(flat, (0, -len(flat) % 8)).view(-1, 8).sum(0)
    return list(sums.tolist())


def same_fingerprint(a: object, b: object) -> bool:
    """Whether two fingerprints are of one model, up to the last bits of its parameters."""
    if not (isinstance(a, list) and isinstance(b, list) and len(a) == len(b) == 8):
        return False
    scale = max(abs(x) for x in [*a, *b])
    return all(abs(x - y) <= 1e-4 * scale for x, y in zip(a, b, strict=True))
