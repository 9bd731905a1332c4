"""How evenly a model serves the clients: accuracy per client, its minimum and its spread."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedalpha.data.federations import Federation, Pooled

Array = NDArray[np.float64]


def client_accuracies(federation: Federation, correct: ArrayLike) -> Array | None:
    """One accuracy per client from one number per test sample; None where clients cannot be told apart.

    Clients that have test samples of their own (``test_owner``) are measured on those. Otherwise client i
    is measured on the test set as if it were drawn from its own labels: Σ_c q_ic·a_c, with q_ic the share
    of class c in its training data and a_c the test accuracy of class c (classes without test samples
    are left out and q renormalised).
    """
    scores = np.asarray(correct, dtype=np.float64)
    owner = federation.test_owner
    if owner is not None:
        seen = np.unique(owner)
        found: Array = (np.bincount(owner, weights=scores) / np.maximum(np.bincount(owner), 1))[seen]
        return found
    if not isinstance(federation, Pooled) or federation.label_counts is None or federation.test.y.ndim != 1:
        return None
    labels = federation.test.y.numpy()
    total = np.bincount(labels, minlength=federation.classes)
    by_class = np.bincount(labels, weights=scores, minlength=federation.classes) / np.maximum(total, 1)
    counts = federation.label_counts * (total > 0)
    held = counts.sum(axis=1)
    clients: Array = (counts @ by_class)[held > 0] / held[held > 0]
    return clients if len(clients) else None


def fairness(federation: Federation, correct: ArrayLike) -> dict[str, Any]:
    """What a history row says about it: the worst client's accuracy, and the standard deviation over clients."""
    accuracies = client_accuracies(federation, correct)
    if accuracies is None:
        return {}
    row: dict[str, Any] = {} if federation.test_owner is None else {"client_accuracy": accuracies.tolist()}
    return row | {
        "worst_client_accuracy": float(accuracies.min()),
        "client_accuracy_spread": float(accuracies.std()),
    }
