"""How evenly a model serves the clients: accuracy per client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from fedalpha.data.federations import Federation

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Owners:
    """Assigns test samples to clients, by the client of each (``test_owner``) or by their ``labels``.

    ``label_counts`` is the table clients × classes of training samples.
    """

    test_owner: NDArray[np.int64] | None = None
    labels: NDArray[np.int64] | None = None
    label_counts: NDArray[np.int64] | None = None

    @staticmethod
    def of(federation: Federation) -> Owners:
        """The owners of the test samples of a federation."""
        from fedalpha.data.federations import Pooled

        if federation.test_owner is not None:
            return Owners(federation.test_owner)
        if not isinstance(federation, Pooled) or federation.label_counts is None or federation.test.y.ndim != 1:
            return Owners()
        return Owners(None, federation.test.y.numpy(), federation.label_counts)

    @property
    def ids(self) -> list[int] | None:
        """The clients that have test samples of their own; None if samples have no clients."""
        return None if self.test_owner is None else np.unique(self.test_owner).tolist()

    def accuracies(self, correct: ArrayLike) -> Array | None:
        """One accuracy per client from one number per test sample; None if samples have no clients.

        Clients that have test samples of their own are measured on those. Otherwise client i is measured on the
        test set as if it were drawn from its own labels: Σ_c q_ic·a_c, with q_ic the share of class c in its
        training data and a_c the test accuracy of class c (classes without test samples are left out and q
        renormalised).

        >>> Owners(np.array([0, 0, 1])).accuracies([1, 0, 1])
        array([0.5, 1. ])
        """
        scores = np.asarray(correct, dtype=np.float64)
        owner = self.test_owner
        if owner is not None:
            seen = np.unique(owner)
            found: Array = (np.bincount(owner, weights=scores) / np.maximum(np.bincount(owner), 1))[seen]
            return found
        if self.labels is None or self.label_counts is None:
            return None
        classes = self.label_counts.shape[1]
        total = np.bincount(self.labels, minlength=classes)
        by_class = np.bincount(self.labels, weights=scores, minlength=classes) / np.maximum(total, 1)
        counts = self.label_counts * (total > 0)
        held = counts.sum(axis=1)
        clients: Array = (counts @ by_class)[held > 0] / held[held > 0]
        return clients if len(clients) else None
