"""The information about the clients of one round that a strategy gets."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedalpha.strategies.simplex import Array, normalise

Need = Literal[
    "before", "train", "after", "steps", "norms", "gram", "cosines", "labels", "design", "accuracy", "staleness"
]


LOSSES: tuple[Need, ...] = ("before", "train", "after")


KNOWN_BEFORE_TRAINING: frozenset[Need] = frozenset({"before", "design", "accuracy", "staleness"})
"""If a rule needs only these values, the cohort is weighed before training, and clients with alpha = 0 do not train."""


@dataclass(frozen=True, eq=False)
class Cohort:
    """The clients of one round for the strategy, as aligned arrays that are checked when the cohort is built.

    ``before`` holds F_i(w_t), ``train`` the running mean over the last local epoch, ``after``
    F_i(w_i); ``optima`` the F_i* (0 where unknown); ``steps`` local steps, ``norms`` the norms
    ‖w_i − w_t‖ and ``gram`` the matrix ⟨w_i − w_t, w_j − w_t⟩; ``cosines`` those between w_i and w_t;
    ``labels`` the class counts, one row per client; ``design`` p_i/π_i, where p_i is the client's share of all
    data and π_i its probability of selection; ``staleness`` τ, how many versions older than w_t the model is from which
    the client trained (0 on a synchronous server). Values that the rule did not ask for are ``None``. ``pull`` is η·μ
    of the local steps (FedProx), 0 without a pull towards w_t; one number for all clients, or one for each.
    """

    ids: NDArray[np.int64]
    sizes: Array
    round: int = 0
    accuracy: float | None = None
    before: Array | None = None
    train: Array | None = None
    after: Array | None = None
    optima: Array | None = None
    steps: Array | None = None
    norms: Array | None = None
    gram: Array | None = None
    cosines: Array | None = None
    labels: Array | None = None
    design: Array | None = None
    staleness: Array | None = None
    pull: float | Array = 0.0

    def __post_init__(self) -> None:
        sizes = _vector("sizes", self.sizes)
        n = len(sizes)
        if n == 0:
            raise ValueError("the cohort is empty: there is no client to weigh; pass at least one client")
        if (sizes < 0).any() or not (sizes > 0).any():
            raise ValueError("sizes must be non-negative with a positive sum: pass each client's sample count")
        ids = np.asarray(self.ids, dtype=np.int64)
        if ids.shape != (n,):
            raise ValueError(f"ids has shape {ids.shape}, but there are {n} clients (sizes): pass one id per client")
        if len(np.unique(ids)) != n:
            raise ValueError("ids repeat: a client takes part once in a round, so its id may appear only once")
        object.__setattr__(self, "ids", ids)
        object.__setattr__(self, "sizes", sizes)
        for name in ("before", "train", "after", "optima", "steps", "norms", "cosines", "design", "staleness"):
            value = getattr(self, name)
            if value is not None:
                label = f"losses ({name})" if name in LOSSES else name
                vector = _vector(label, value)
                if len(vector) != n:
                    raise ValueError(f"{label} has {len(vector)} values for {n} clients (sizes): pass one per client")
                object.__setattr__(self, name, vector)
        if self.staleness is not None and (self.staleness < 0).any():
            raise ValueError("staleness counts versions of the model: give numbers ≥ 0")
        if self.gram is not None:
            gram = np.asarray(self.gram, dtype=np.float64)
            if gram.shape != (n, n) or not np.isfinite(gram).all():
                raise ValueError(
                    f"gram has shape {gram.shape}, expected a finite {n}×{n} matrix: pass one row per client"
                )
            object.__setattr__(self, "gram", gram)
        if self.labels is not None:
            labels = np.asarray(self.labels, dtype=np.float64)
            if labels.ndim != 2 or len(labels) != n or not np.isfinite(labels).all() or (labels < 0).any():
                raise ValueError(f"labels must be {n} rows of class counts ≥ 0, got shape {labels.shape}")
            object.__setattr__(self, "labels", labels)
        if self.round < 0:
            raise ValueError(f"round is {self.round}: rounds are counted from 0")
        if self.accuracy is not None and not 0 <= self.accuracy <= 1:
            raise ValueError(f"accuracy is {self.accuracy}: give a fraction between 0 and 1 (0.6, not 60)")

    def __len__(self) -> int:
        return len(self.ids)

    def replace(self, **changes: Any) -> Cohort:
        """A copy with some fields changed or added: ``cohort.replace(before=losses)``."""
        return dataclasses.replace(self, **changes)

    def prior(self, kind: str) -> Array:
        """p: proportional to the sizes, or uniform."""
        if kind == "uniform":
            return np.full(len(self), 1.0 / len(self))
        if self.sizes.max() > 1e300:  # their sum may overflow
            return normalise(self.sizes / self.sizes.max())
        return normalise(self.sizes)

    def require(self, need: Need) -> Array:
        """The array called ``need``; raises ValueError if the cohort does not have it."""
        value: Array | None = getattr(self, need)
        if value is None:
            raise ValueError(
                f"this strategy needs {need!r} of every client and the cohort does not have it; "
                f"list it in the strategy's `requires`, or pass {need}= when you build the cohort"
            )
        return value


def table(counts: Sequence[Sequence[int]], width: int = 0) -> Array:
    """Class counts as rows of one length (at least ``width``); a client may leave out last classes with a count of 0.

    >>> table([[1], [0, 2]])
    array([[1., 0.],
           [0., 2.]])
    """
    width = max(width, *(len(row) for row in counts))
    return np.array([[*row, *[0] * (width - len(row))] for row in counts], dtype=np.float64)


def cosines(tensors: Iterable[tuple[NDArray[Any], Sequence[NDArray[Any]]]]) -> Array:
    """The cosine between each model and the model that was sent; for each tensor, the sent one and that of every model.

    >>> cosines([(np.array([1.0, 0.0]), [np.array([2.0, 0.0]), np.array([3.0, 4.0])])])
    array([1. , 0.6])
    """
    products, squares, square = np.zeros(1), np.zeros(1), 0.0
    for sent, models in tensors:
        old, new = sent.astype(np.float64).ravel(), np.stack([m.astype(np.float64).ravel() for m in models])
        products = products + (new * old).sum(axis=1)
        squares = squares + (new * new).sum(axis=1)
        square += float((old * old).sum())
    return np.asarray(products / np.maximum(np.sqrt(squares * square), 1e-300))


def _vector(name: str, value: ArrayLike) -> Array:
    try:
        vector = np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must be a list of numbers, one per client: {error}") from None
    if vector.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {vector.shape}: pass one number per client")
    bad = np.flatnonzero(~np.isfinite(vector))
    if len(bad):
        raise ValueError(
            f"{name}[{bad[0]}] is {vector[bad[0]]}: only finite values can be weighed; leave that client out"
        )
    return vector
