"""The interface between a round and the place where clients are computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fedalpha.combine import Reports
from fedalpha.strategies import Array
from fedalpha.update import Broadcast

Ids = NDArray[np.int64]
Part = Literal["test", "validation"]


@dataclass(frozen=True, eq=False)
class Job:
    """Who shall train in a round.

    ``alpha`` (aligned with ``ids``) is given when the weights are known before training and the combine
    rule is linear: the engine then returns Σ alpha_i·w_i instead of every model. ``states`` holds the
    clients' states, ``wanted`` the losses to measure besides ``train``.
    """

    round: int
    ids: Ids
    alpha: Array | None = None
    states: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    wanted: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Sample:
    """Measure a loss on ``batch`` samples, drawn anew in every round, instead of all of a client's data."""

    round: int
    batch: int


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The mean loss, and one number per sample for correctness (None where accuracy has no meaning)."""

    loss: float
    correct: Array | None

    @property
    def accuracy(self) -> float | None:
        return None if self.correct is None else float(self.correct.mean())


class Engine(Protocol):
    """Computes what clients compute; knows nothing of strategies."""

    def losses(self, broadcast: Broadcast, ids: Ids, sample: Sample | None = None) -> Array:
        """F_i of the broadcast model on each client's training data, or on a sample of it."""

    def update(self, broadcast: Broadcast, job: Job) -> Reports:
        """Train the clients of a job; reports sorted by id."""

    def evaluate(self, broadcast: Broadcast, part: Part) -> Evaluation:
        """Loss and correctness of the broadcast model on the server's data."""

    def close(self) -> None:
        """Free what the engine holds."""
