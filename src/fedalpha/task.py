"""The task: what is minimised, and what counts as correct."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from fedalpha.text import nearest, quoted

SCORES = {"balanced_accuracy": "label", "f1": "label", "roc_auc": "output", "mse": "output", "r2": "output"}
"""The scores by name, and what they are computed from: the predicted label, or the model's output."""
OF_VALUES = ("mse", "r2")
"""The scores that compare values; the others compare labels."""


def classified(output: Tensor, target: Tensor) -> Tensor:
    """1 where the largest output is the target's class; of a sequence, the share of its positions."""
    right = (output.argmax(dim=1) == target).to(torch.float64)
    return right if right.dim() < 2 else right.flatten(1).mean(dim=1)


def squared_error(output: Tensor, target: Tensor) -> Tensor:
    """The mean squared error. One value per sample may have the shape (n,) or (n, 1), whichever the model returns.

    torch's own ``mse_loss`` would compare every sample with every other one where these shapes differ.
    """
    if output.numel() != target.numel():
        raise ValueError(
            f"there are {output.numel()} outputs for {target.numel()} values; give the model one output per value to "
            "predict, or leave task out if the targets are labels"
        )
    return mse_loss(output, target.reshape(output.shape).to(output.dtype))


@dataclass(frozen=True)
class Task:
    """``loss(output, target)`` is the scalar that clients minimise on a batch.

    ``reduction`` says whether that scalar is the mean or the sum over the batch (losses are always
    reported per sample). ``correct(output, target)`` gives one number per sample, whose mean is the
    accuracy; ``None`` where accuracy has no meaning (regression). ``signed`` says that the loss may be
    negative. ``separable`` says that the loss of a batch is the mean (or sum) of its samples' losses, as
    cross-entropy's is; small models of clients with unequal sizes are then trained many at a time. ``scores`` are
    columns of the history besides accuracy: balanced_accuracy, f1, roc_auc for labels, mse and r2 for values.
    """

    loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy
    correct: Callable[[Tensor, Tensor], Tensor] | None = classified
    reduction: Literal["mean", "sum"] = "mean"
    signed: bool = False
    separable: bool | None = None
    scores: tuple[str, ...] | str = ()

    def __post_init__(self) -> None:
        for what, function in (("loss", self.loss), ("correct", self.correct)):
            if not callable(function) and (what == "loss" or function is not None):
                raise TypeError(
                    f"Task: {what} = {function!r} is not a function of (output, target); a task with a name is given "
                    "as federation(…, task='mse')"
                )
        names = self.scores.replace(",", " ").split() if isinstance(self.scores, str) else self.scores
        object.__setattr__(self, "scores", tuple(names))
        for name in names:
            if name not in SCORES:
                raise ValueError(f"unknown score {quoted(name)}; {nearest(name, SCORES)}")
        if self.separable is None:
            object.__setattr__(self, "separable", self.loss in (cross_entropy, mse_loss, squared_error))

    def describe(self) -> dict[str, Any]:
        """The task as JSON; functions by their names."""
        names = {kind: _name(getattr(self, kind)) for kind in ("loss", "correct")}
        scores = {"scores": list(self.scores)} if self.scores else {}
        return {**names, "reduction": self.reduction, "signed": self.signed, "separable": self.separable, **scores}

    def record(self, output: Tensor, target: Tensor) -> Tensor:
        """What the scores need of each sample: the target, and the predicted label or the whole output."""
        found = output if any(SCORES[name] == "output" for name in self.scores) else output.argmax(dim=1)
        return torch.cat([part.reshape(len(target), -1).to(torch.float64) for part in (target, found)], dim=1)

    def per_sample(self, loss: float, batch: int) -> float:
        return loss if self.reduction == "mean" else loss / batch


def _name(function: object) -> str | None:
    known = function if hasattr(function, "__qualname__") else type(function)
    return None if function is None else f"{known.__module__}.{known.__qualname__}"


def batch_softmax(output: Tensor, target: Tensor) -> Tensor:
    """Softmax over the *batch* axis, then the summed cross-entropy of that: what the paper's authors ran.

    Kept to reproduce their figures; a classifier should normalise over its classes.
    """
    return cross_entropy(output.softmax(dim=0), target, reduction="sum")


def summed(output: Tensor, target: Tensor) -> Tensor:
    """The cross-entropy, summed over the batch."""
    return cross_entropy(output, target, reduction="sum")


TASKS = {
    "cross_entropy": Task(),
    "mse": Task(loss=squared_error, correct=None),
    "summed": Task(loss=summed, reduction="sum"),
    "batch_softmax": Task(loss=batch_softmax, reduction="sum"),
}


def task(name: str, scores: str | None = None) -> Task:
    """The task of that name with these scores; accuracy is always read off the outputs, before any softmax.

    >>> task("summed").reduction
    'sum'
    """
    if name not in TASKS:
        raise ValueError(f"unknown task {quoted(name)}; {nearest(name, TASKS)}")
    return dataclasses.replace(TASKS[name], scores=scores) if scores else TASKS[name]
