"""The rules of a round that a Flower strategy provides: its sampling, a mean in NumPy, its server optimiser."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

import numpy as np
from flwr.app import Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import strategy as flower

from fedalpha.flower.forms import Form
from fedalpha.flower.packing import plain, record_of, restored
from fedalpha.flower.reports import Model, Reports
from fedalpha.flower.sums import is_float, mean_of, weighted_mean
from fedalpha.round import Ids
from fedalpha.select import Population, Select
from fedalpha.strategies import Array as Numbers
from fedalpha.strategies import State
from fedalpha.strategies.plug_point import PlugPoint


@dataclass(frozen=True)
class Connected:
    """The clients that are connected, by id; sizes as last reported, NaN where a client has not reported one.

    If all sizes are 0, they count as unknown, so that clients without data are asked again.
    """

    ids: Ids
    known: Mapping[int, float]

    @property
    def clients(self) -> int:
        return len(self.ids)

    def named(self, places: Ids) -> Ids:
        return self.ids[places]

    def sizes(self, ids: Ids) -> Numbers:
        sizes = np.array([self.known.get(i, math.nan) for i in ids.tolist()])
        return sizes if sizes.any() else np.full(len(ids), math.nan)

    def optima(self, ids: Ids) -> None:
        return None


class fraction(Select):
    """Flower's number of clients, drawn by the seed without replacement: a share of them, but at least ``least``."""

    share: float = 1.0
    least: int = 1

    def size(self, n: int) -> int:
        return max(math.floor(self.share * n + 1e-9), self.least, 1)

    def chances(self, population: Population) -> Numbers:
        n = population.clients
        return np.full(n, min(1.0, self.size(n) / n))

    def select(
        self, state: State, population: Population, losses: Numbers | None, rng: np.random.Generator
    ) -> tuple[Ids, State]:
        n, m = population.clients, self.size(population.clients)
        if m >= n:
            return population.named(np.arange(n)), state
        return population.named(np.sort(rng.choice(n, size=m, replace=False, shuffle=False))), state


class Mean(PlugPoint):
    """Σ alpha_i·w_i, with the same bits as ``mean`` in torch."""

    linear = True
    alone = None
    keeps_lost_weight = False
    clipped_to = None
    wants: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return "mean"

    def weights(self, alpha: Numbers) -> Numbers:
        return alpha

    def init(self) -> State:
        return {}

    def combine(
        self, state: State, broadcast: Model, reports: Reports, alpha: Numbers, simplex: bool
    ) -> tuple[Model, State]:
        if not alpha.any():  # no client counts, for example because all are idle
            return broadcast, state
        if reports.total is None:
            arrays = weighted_mean(alpha, reports.models(), broadcast.parameters, simplex)
        else:
            rest = 0.0 if simplex else 1 - math.fsum(alpha.tolist())
            arrays = mean_of(reports.total, broadcast.parameters, rest)
        return dataclasses.replace(broadcast, parameters=arrays), state


class Remote(PlugPoint):
    """The client update of the clients' own apps; the server does not know it."""

    def pulled(self, round: int) -> float:
        return 0.0

    def absorb(self, broadcast: Any, reports: Sequence[Any], population: Population) -> Any:
        return broadcast.extras


class Replace(PlugPoint):
    """The aggregate becomes the model."""

    def __str__(self) -> str:
        return "replace"

    def init(self) -> State:
        return {}

    def apply(self, state: State, broadcast: Any, aggregate: Any) -> tuple[Any, State]:
        return aggregate, state


class Optimiser(PlugPoint):
    """A Flower server optimiser. It receives the combined model as if one client had sent it.

    The optimiser's memory is the state of this rule: it is set before the step and read after it. ``buffers`` are
    patterns of the names of arrays that are not trained (running means, counters): these come from the aggregate.
    """

    def __init__(self, over: flower.FedAvg, form: Form, buffers: Sequence[str]) -> None:
        self.over, self.form, self.buffers = over, form, buffers
        self._fresh = dict(vars(over))
        self.server_round = 0

    def init(self) -> State:
        return {}

    def apply(self, state: State, broadcast: Any, aggregate: Any) -> tuple[Any, State]:
        vars(self.over).update(restored(dict(state)))
        arrays = self.form.arrays(aggregate.parameters)
        metrics = MetricRecord({self.over.weighted_by_key: 1.0})
        content = RecordDict({self.over.arrayrecord_key: record_of(arrays), "metrics": metrics})
        reply = Message(content, dst_node_id=0, message_type=MessageType.TRAIN)
        applied, _ = self.over.aggregate_train(self.server_round, [reply])
        if applied is None:
            return broadcast, state
        stepped = {
            name: applied[name].numpy().astype(value.dtype) if is_float(value) and not self._kept(name) else value
            for name, value in arrays.items()
        }
        unset = object()
        changed = {
            k: plain(v) for k, v in vars(self.over).items() if self._fresh.get(k, unset) is not v and k not in _SET_ANEW
        }
        return self.form.changed(aggregate, stepped), changed

    def _kept(self, name: str) -> bool:
        return any(fnmatch(name, pattern) for pattern in self.buffers)


_SET_ANEW = ("current_arrays",)
"""Attributes that Flower's optimisers set in every round from the arrays that they send."""
