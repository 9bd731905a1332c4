"""Scores of a model on the test set besides accuracy, from one record per sample (`fedalpha.task.Task.record`)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedalpha.task import Task

Array = NDArray[np.float64]


def scores(task: Task, records: Array | None, targets: int) -> dict[str, float | None]:
    """The scores that a task asks for; ``targets`` is the number of targets per sample. None where one has no value."""
    if records is None:
        return {}
    target, rest = records[:, :targets], records[:, targets:]
    return {name: SCORES[name](target, rest) for name in task.scores}


def _labels(target: Array, rest: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The true and the predicted labels of all samples (and positions)."""
    if rest.shape[1] != target.shape[1]:  # outputs, not labels: classes × positions
        rest = rest.reshape(len(rest), -1, target.shape[1]).argmax(axis=1)
    return target.reshape(-1).astype(np.int64), rest.reshape(-1).astype(np.int64)


def _counts(target: Array, rest: Array) -> tuple[Array, Array, Array]:
    """Of each class: how often it was right, how often it occurs, how often it was predicted."""
    true, predicted = _labels(target, rest)
    classes = int(max(true.max(), predicted.max())) + 1
    right = np.bincount(true[true == predicted], minlength=classes)
    found: tuple[Array, ...] = tuple(
        count.astype(np.float64)
        for count in (right, np.bincount(true, minlength=classes), np.bincount(predicted, minlength=classes))
    )
    return found[0], found[1], found[2]


def balanced_accuracy(target: Array, rest: Array) -> float:
    """The mean over the classes that occur of the share of their samples that is right."""
    right, occurs, _ = _counts(target, rest)
    return float((right[occurs > 0] / occurs[occurs > 0]).mean())


def f1(target: Array, rest: Array) -> float:
    """The mean over the classes that occur or are predicted of 2·right/(occurs + predicted)."""
    right, occurs, predicted = _counts(target, rest)
    seen = occurs + predicted > 0
    return float((2 * right[seen] / (occurs + predicted)[seen]).mean())


def roc_auc(target: Array, rest: Array) -> float | None:
    """The area under the ROC curve, one class against the rest, averaged over the classes; by ranks."""
    from scipy.stats import rankdata

    true, found = target[:, 0].astype(np.int64), []
    for k in range(rest.shape[1]):
        positive = true == k
        if 0 < (count := int(positive.sum())) < len(true):
            ranks = rankdata(_log_shares(rest)[:, k])[positive].sum()
            found.append((ranks - count * (count + 1) / 2) / (count * (len(true) - count)))
    return float(np.mean(found)) if found else None


def _log_shares(outputs: Array) -> Array:
    """The logarithm of the softmax over classes: outputs of different samples are comparable only after it."""
    shifted = outputs - outputs.max(axis=1, keepdims=True)
    found: Array = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return found


def mse(target: Array, rest: Array) -> float:
    """The mean squared error."""
    return float(((rest - target) ** 2).mean())


def r2(target: Array, rest: Array) -> float | None:
    """1 − squared error / variance, averaged over the values to predict."""
    spread = ((target - target.mean(axis=0)) ** 2).sum(axis=0)
    if not (spread > 0).all():
        return None
    return float((1 - ((rest - target) ** 2).sum(axis=0) / spread).mean())


SCORES: dict[str, Callable[[Array, Array], float | None]] = {
    "balanced_accuracy": balanced_accuracy,
    "f1": f1,
    "roc_auc": roc_auc,
    "mse": mse,
    "r2": r2,
}
