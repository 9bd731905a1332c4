"""Models and reports of a Flower federation: NumPy arrays by name, and the reading of training replies."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from numpy.typing import NDArray

from fedalpha.fast.gram import gram
from fedalpha.flower.names import CLIPPED, COMMITTED, EXTRAS, FRESH, STATE, TOLD, TREE
from fedalpha.flower.queries import LABELS
from fedalpha.flower.replies import (
    Rejected,
    array_of,
    arrays_of,
    content_of,
    finite,
    metrics_of,
    number,
    state_array,
    uploaded_of,
)
from fedalpha.flower.sums import Arrays, Running, all_finite, beyond, distance, is_float, largest
from fedalpha.strategies import Array
from fedalpha.strategies.cohort import cosines
from fedalpha.upload import Upload

_LONGEST_TREE = 1_000_000
_LARGEST_STATE = 32
"""A client's state may be this many times as large as the model."""
_NOTHING = np.zeros(0)


@dataclass(frozen=True, eq=False)
class Model:
    """The model that the server sends."""

    parameters: Arrays
    extras: Arrays = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        return sum(value.nbytes for value in (*self.parameters.values(), *self.extras.values()))

    def beyond(self, current: Model, bound: float) -> str | None:
        """Name a value that is not finite, or ``bound`` times larger than the current ones; None if all are valid."""
        return beyond(self.parameters, current.parameters, bound)


@dataclass(frozen=True, eq=False)
class Report:
    """A client's reply to a training message, whose form has been checked."""

    id: int
    parameters: Arrays | None
    losses: Mapping[str, float] = field(default_factory=dict)
    steps: int = 0
    samples: float = 0.0
    extras: Arrays = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    origin: tuple[int, int] | None = None
    delay: float = 0.0
    labels: Sequence[int] | None = None
    uploaded: int | None = None
    """The number of bytes in which its model was sent; None for that of the model."""
    fresh: bool = False
    """Whether the node had lost the client's state."""

    def misfit(self, broadcast: Any) -> str | None:
        return None

    def same(self, other: Report) -> bool:
        """Whether another report has the same losses and the same model."""
        return self.losses == other.losses and _equal(self.parameters, other.parameters)

    def unchanged(self, broadcast: Model) -> bool:
        """Whether the model is the one that was sent."""
        return _equal(self.parameters, broadcast.parameters)


def _moved(model: Arrays, sent: Arrays, current: Arrays) -> Arrays:
    """w_t + (w_i − w_{t−τ}), array by array; the same bits as in `fedalpha.combine`."""
    return {
        name: (current[name].astype(np.float64) + (value.astype(np.float64) - sent[name].astype(np.float64))).astype(
            value.dtype
        )
        if is_float(value)
        else value
        for name, value in model.items()
    }


def _equal(a: Arrays | None, b: Arrays | None) -> bool:
    return a is not None and b is not None and all(np.array_equal(v, b[k]) for k, v in a.items())


@dataclass(frozen=True, eq=False)
class Reports:
    """The reports of a round, sorted by client id; ``total`` is Σ alpha_i·w_i if models were summed as they came."""

    items: Sequence[Report]
    total: Arrays | None = None
    final: bool = True
    uploaded: int | None = None
    """The bytes that arrived, where they are not one model per client."""

    @cached_property
    def ids(self) -> NDArray[np.int64]:
        return np.array([r.id for r in self.items], dtype=np.int64)

    @property
    def summed(self) -> bool:
        return self.total is not None

    def only(self, items: Sequence[Report]) -> Reports:
        """A copy with only these reports."""
        return dataclasses.replace(self, items=items)

    def rebased(self, sent: Mapping[int, Model], current: Model) -> Reports:
        """A copy in which the models of stale updates are w_t + (w_i − what client i was sent), in float64."""
        items = [
            dataclasses.replace(r, parameters=_moved(r.parameters, sent[r.id].parameters, current.parameters))
            if r.id in sent and r.parameters is not None
            else r
            for r in self.items
        ]
        return dataclasses.replace(self, items=items)

    def finite(self, broadcast: Model) -> bool:
        """Whether the sum is finite; every model was checked before it was added."""
        return all(map(all_finite, (self.total or {}).values()))

    def divided(self, mass: float) -> Reports:
        """A copy with the sum divided by ``mass``; integer buffers do not change."""
        assert self.total is not None
        total = {k: v / mass if is_float(v) else v for k, v in self.total.items()}
        return dataclasses.replace(self, total=total)

    def total_of(self, ids: NDArray[np.int64], alpha: Array, alone: None, broadcast: Model) -> Reports:
        """A copy with the sum over the clients of an order (``ids``), in whose blocks lost clients are left out."""
        if self.total is not None:
            return self
        running, place = Running(alpha), {id: place for place, id in enumerate(ids.tolist())}
        for report in self.items:
            assert report.parameters is not None
            running.add(place[report.id], report.parameters)
        return dataclasses.replace(self, total=running.total())

    def gram(self, broadcast: Model) -> Array:
        """The matrix ⟨w_i − w_t, w_j − w_t⟩ over all floating arrays."""
        return gram(self.models(), broadcast.parameters)

    def cosines(self, broadcast: Model) -> Array:
        """The cosine between each client's model and the one that was sent, over all floating arrays."""
        floats = [(name, old) for name, old in broadcast.parameters.items() if is_float(old)]
        return cosines((old, [m[name] for m in self.models()]) for name, old in floats)

    def nbytes(self, broadcast: Model) -> int:
        """The bytes that the clients uploaded: their models as they were sent, extras, and class counts of 8 bytes."""
        if self.uploaded is not None:
            return self.uploaded
        model = sum(value.nbytes for value in broadcast.parameters.values())
        models = sum(model if r.uploaded is None else r.uploaded for r in self.items)
        counts = sum(8 * len(r.labels) for r in self.items if r.labels is not None)
        return models + sum(value.nbytes for r in self.items for value in r.extras.values()) + counts

    def models(self) -> list[Arrays]:
        """Every client's arrays."""
        return [r.parameters for r in self.items if r.parameters is not None]


@dataclass(frozen=True)
class Wanted:
    """What a training reply must contain: its size under ``size_key``, losses under ``loss_keys``.

    ``needs`` are the values that the strategy uses. ``bound`` limits the values of a model, as `Admission.bound` does
    for the aggregate. ``extras`` are the names of the arrays that the client update sends besides a model, and
    ``common`` those that the server has sent; the bound also holds for them. ``upload`` encodes updates, None for
    whole models.
    """

    size_key: str
    loss_keys: Mapping[str, str]
    needs: frozenset[str]
    sent: Arrays
    bound: float | None = None
    extras: frozenset[str] = frozenset()
    common: Arrays = field(default_factory=dict)
    upload: Upload | None = None
    _known: dict[str, float] = field(default_factory=dict, init=False)

    def read(self, id: int, reply: Message | None) -> Report:
        """The report in a reply; raises `Rejected`."""
        content = content_of(reply)
        metrics = metrics_of(reply)
        samples = number(metrics, self.size_key)
        told = "steps" in self.needs or "steps" in metrics
        steps = number(metrics, "steps", whole=True) if told else 0
        losses = self._losses(metrics)
        arrays, uploaded = self._arrays(reply, check=self.bound is None)  # one pass finds what is too large or NaN
        if self.bound is not None and (reason := beyond(arrays, self.sent, self.bound, self._known)):
            raise Rejected(f"array {reason}")
        self._check_clipped(arrays, content.config_records.get(CLIPPED))
        records = content.array_records
        extras = self._extras(records.get(EXTRAS))
        state, fresh = self._state(records.get(STATE), content.config_records.get(TOLD))
        labels = self._labels(metrics)
        return Report(id, arrays, losses, steps, samples, extras, state, labels=labels, uploaded=uploaded, fresh=fresh)

    def _arrays(self, reply: Message | None, check: bool) -> tuple[Arrays, int | None]:
        """The model, and the number of bytes in which it was sent if that differs from the model's."""
        if self.upload is None:
            return arrays_of(reply, self.sent, check), None
        return uploaded_of(reply, self.sent, self.upload, check)

    def _check_clipped(self, arrays: Arrays, told: ConfigRecord | None) -> None:
        """Refuse an update that is longer than its client says, except for the rounding of its values."""
        if told is None:
            return
        norm = finite(told, "norm")
        length = distance(arrays, self.sent)
        rounding = sum(
            float(np.finfo(old.dtype).eps) * math.sqrt(old.size) * largest(old)
            for old in self.sent.values()
            if is_float(old)
        )
        if not length <= norm * (1 + 1e-6) + rounding:
            raise Rejected(
                f"its update has the norm {length:.6g}, but its client says that it was clipped to {norm:.6g}"
            )

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

    def _extras(self, record: ArrayRecord | None) -> Arrays:
        """The arrays that the client update sends besides a model, in the form of the model's, under a prefix."""
        names = frozenset() if record is None else frozenset(record)
        if names != self.extras:
            odd = sorted(names ^ self.extras)
            raise Rejected(f"extras differ from what update= sends, for example {odd[0]!r}; use the same update= there")
        found: Arrays = {}
        for name in sorted(names):
            assert record is not None
            like = self.sent[max((key for key in self.sent if name.endswith(f".{key}")), key=len)]
            found[name] = array_of(name, record[name], like)
        current = {name: self.common.get(name, _NOTHING) for name in found}
        if self.bound is not None and (reason := beyond(found, current, self.bound)):
            raise Rejected(f"extra {reason}")
        return found

    def _state(self, record: ArrayRecord | None, config: ConfigRecord | None) -> tuple[dict[str, Any], bool]:
        """A client's next state, which the server stores without reading it."""
        if config is None:
            return {}, False
        tree = config.get(TREE)
        if tree is None:
            return {COMMITTED: True}, bool(config.get(FRESH, False))
        size = sum(len(name) + len(array.data) for name, array in (record or {}).items())
        room = _LARGEST_STATE * sum(value.nbytes for value in self.sent.values()) + 1_000_000
        if not isinstance(tree, str) or len(tree) > _LONGEST_TREE or size > room:
            raise Rejected(f"its state has {size} bytes; at most {room} are kept")
        return {TREE: tree, "arrays": {name: state_array(name, array) for name, array in (record or {}).items()}}, False
