"""Whether model, data and task fit together, tried on two samples before anything is trained."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedalpha.data.federations import Examples, Federation
from fedalpha.data.transforms import Change
from fedalpha.task import OF_VALUES, SCORES, Task
from fedalpha.update.base import Broadcast, Update, seeded


def check_fit(broadcast: Broadcast, federation: Federation, update: Update) -> None:
    """Raise ValueError, with the cause and a remedy, if model, data, task and client update do not fit together."""
    update.suits(federation.clients)
    few = federation.client(0)[slice(0, 2)]
    _check_targets(few.y, federation)
    device = torch.device("cpu")
    with seeded(0, device), torch.no_grad():
        if federation.transform is not None:
            _check_transform(federation.transform, few.x, federation.description.get("transform"))
        module = broadcast.architecture.build().to(device).eval()
        module.load_state_dict(broadcast.parameters)
        try:
            output = module(few.x)
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            raise ValueError(f"the model cannot take samples of {_form(few.x)}: {error}; {_remedy(few.x)}") from error
    if not isinstance(output, Tensor):
        return
    _check_scores(output, few.y, federation.task)
    if federation.task.loss is cross_entropy:
        _check_output(output, few, federation)
    else:
        _check_loss(output, few.y, federation.task)


def _check_targets(y: Tensor, federation: Federation) -> None:
    """Cross-entropy takes float targets for probabilities of classes; a single one per sample gives a loss of 0."""
    if federation.task.loss is cross_entropy and y.is_floating_point() and (y.dim() == 1 or y.shape[1:] == (1,)):
        raise ValueError(
            f"the targets are {y.dtype} of shape {tuple(y.shape[1:])}, and cross-entropy needs labels 0, 1, 2 …; "
            'pass y.long() if they are labels; if they are values, task="mse" or Task(loss=…, correct=None)'
        )


def _check_transform(transform: Change, x: Tensor, name: str | None) -> None:
    """``name``: what the federation calls the transform."""
    try:
        found = transform(x.clone(), np.random.default_rng(0))
    except Exception as error:  # a function of the user may raise anything
        raise ValueError(f"the transform {name} cannot change samples of {_form(x)}: {error}") from error
    if not isinstance(found, Tensor) or found.shape != x.shape or found.dtype != x.dtype:
        form = _form(found) if isinstance(found, Tensor) else f"type {type(found).__name__}"
        raise ValueError(
            f"the transform {name} returned samples of {form} for samples of {_form(x)}; return a tensor of the same "
            "shape and type"
        )


def _check_output(output: Tensor, few: Examples, federation: Federation) -> None:
    if few.y.is_floating_point() or output.dim() < 2:
        return
    if (len(output), *output.shape[2:]) != few.y.shape:
        raise ValueError(
            f"the model's output has shape {tuple(output.shape)} for targets of shape {tuple(few.y.shape)}; "
            "cross-entropy needs (samples, classes), or (samples, classes, positions) for a label per position"
        )
    if output.shape[1] < federation.classes:
        raise ValueError(
            f"the model has {output.shape[1]} outputs, but there are {federation.classes} classes; "
            "give it one output per class"
        )


def _check_scores(output: Tensor, y: Tensor, task: Task) -> None:
    """Scores of labels need classes to choose from, scores of values one output per value."""
    values = output.dim() < 2 or output.numel() == y.numel() or y.is_floating_point()
    if wrong := [name for name in task.scores if (name in OF_VALUES) != values]:
        fit = [name for name in SCORES if (name in OF_VALUES) == values]
        raise ValueError(
            f"scores: {wrong[0]} compares {'labels' if values else 'values'}, and here the targets are "
            f"{'values' if values else 'labels'}; give {', '.join(fit)}"
        )


def _check_loss(output: Tensor, y: Tensor, task: Task) -> None:
    """A loss that fails, or that compares targets with outputs of another shape: torch only warns of that."""
    shapes = f"outputs of shape {tuple(output.shape)} with targets of shape {tuple(y.shape)}"
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Using a target size", UserWarning)
        try:
            found = task.loss(output.clone().requires_grad_(output.is_floating_point()), y)
        except UserWarning:
            raise ValueError(f"the loss compares {shapes}; bring them to one shape, such as y[:, None]") from None
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            raise ValueError(f"the loss cannot compare {shapes}: {error}") from error
    if isinstance(found, Tensor) and found.numel() != 1:
        raise ValueError(f"the loss returned shape {tuple(found.shape)}, and a single number is needed; take its mean")


def _form(x: Tensor) -> str:
    return f"shape {tuple(x.shape[1:])} and type {str(x.dtype).removeprefix('torch.')}"


def _remedy(x: Tensor) -> str:
    if x.is_floating_point():
        return "choose a model for this shape, or reshape X"
    return "whole numbers need a model that begins with an embedding (lstm, transformer); for others pass X.float()"
