"""Models and reports of a Flower federation as the round sees them: NumPy arrays by name."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from flwr.app import Message, MetricRecord
from numpy.typing import NDArray

from fedalpha.fast.gram import gram
from fedalpha.flower.queries import LABELS
from fedalpha.flower.replies import Rejected, arrays_of, content_of, finite, metrics_of, number
from fedalpha.flower.sums import Arrays, is_float
from fedalpha.strategies import Array
from fedalpha.strategies.cohort import cosines


@dataclass(frozen=True, eq=False)
class Model:
    """What the server sends."""

    arrays: Arrays
    extras: Arrays = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        return sum(value.nbytes for value in (*self.arrays.values(), *self.extras.values()))


@dataclass(frozen=True, eq=False)
class Report:
    """A client's reply to a training message; ``problem`` says why it cannot be used."""

    id: int
    arrays: Arrays = field(default_factory=dict)
    losses: Mapping[str, float] = field(default_factory=dict)
    steps: int = 0
    samples: float = 0.0
    problem: str | None = None
    message: Message | None = None
    extras: Arrays = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    origin: tuple[int, int] | None = None
    delay: float = 0.0
    labels: Sequence[int] | None = None

    def misfit(self, broadcast: Model) -> str | None:
        """What is wrong with the reply. Its form was checked as it was read."""
        return self.problem

    def same(self, other: Report) -> bool:
        """Whether another report has the same losses and the same model."""
        return self.losses == other.losses and all(np.array_equal(v, other.arrays[k]) for k, v in self.arrays.items())

    def unchanged(self, broadcast: Model) -> bool:
        """Whether the model is the one that was sent."""
        return all(np.array_equal(v, broadcast.arrays[k]) for k, v in self.arrays.items())


@dataclass(frozen=True, eq=False)
class Reports:
    """The reports of a round, sorted by client id."""

    items: Sequence[Report]
    summed: bool = False

    @cached_property
    def ids(self) -> NDArray[np.int64]:
        return np.array([r.id for r in self.items], dtype=np.int64)

    def only(self, items: Sequence[Report]) -> Reports:
        """The same with these reports alone."""
        return dataclasses.replace(self, items=items)

    def gram(self, broadcast: Model) -> Array:
        """The matrix ⟨w_i − w_t, w_j − w_t⟩ over all floating arrays."""
        return gram([r.arrays for r in self.items], broadcast.arrays)

    def cosines(self, broadcast: Model) -> Array:
        """The cosine between each client's model and the one that was sent, over all floating arrays."""
        floats = [(name, old) for name, old in broadcast.arrays.items() if is_float(old)]
        return cosines((old, [r.arrays[name] for r in self.items]) for name, old in floats)

    def nbytes(self, broadcast: Model) -> int:
        """What the clients uploaded: a model each, and class counts of 8 bytes."""
        counts = sum(8 * len(r.labels) for r in self.items if r.labels is not None)
        return len(self.items) * sum(value.nbytes for value in broadcast.arrays.values()) + counts


@dataclass(frozen=True)
class Wanted:
    """What a training reply must contain: its size under ``size_key``, losses under ``loss_keys``."""

    size_key: str
    loss_keys: Mapping[str, str]
    needs: frozenset[str]

    def read(self, id: int, reply: Message | None, sent: Arrays) -> Report:
        """The report in a reply. If it cannot be used, its ``problem`` says why."""
        try:
            content_of(reply)
            metrics = metrics_of(reply)
            samples = number(metrics, self.size_key)
            told = "steps" in self.needs or "steps" in metrics
            steps = number(metrics, "steps", whole=True) if told else 0
            labels = self._labels(metrics)
            arrays = arrays_of(reply, sent)
            return Report(id, arrays, self._losses(metrics), steps, samples, message=reply, labels=labels)
        except Rejected as reason:
            return Report(id, problem=str(reason))

    def _labels(self, metrics: MetricRecord) -> Sequence[int] | None:
        """The class counts, if they are needed; the gate checks them."""
        found: Any = metrics.get(LABELS) if "labels" in self.needs else None
        return found if isinstance(found, list) else None

    def _losses(self, metrics: MetricRecord) -> dict[str, float]:
        """The losses that are needed, and any others that the reply contains."""
        found: dict[str, float] = {}
        for kind, key in self.loss_keys.items():
            if kind in self.needs:
                found[kind] = finite(metrics, key)
            elif isinstance(value := metrics.get(key), int | float) and math.isfinite(value):
                found[kind] = float(value)
        return found
