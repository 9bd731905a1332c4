"""The plug points of a round as a Flower strategy fills them: its sampling, a mean in NumPy, its server optimiser."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as flower

from fedalpha.flower.reports import Model, Report, Reports
from fedalpha.flower.sums import is_float, weighted_mean
from fedalpha.round import Ids
from fedalpha.select import Population, Select
from fedalpha.strategies import Array as Numbers
from fedalpha.strategies import State
from fedalpha.strategies.company import PlugPoint


@dataclass(frozen=True)
class Connected:
    """The clients that are connected, by id; sizes as last reported, NaN where a client has not reported one.

    If all sizes are 0, they count as unknown. So clients that had no data are asked again.
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
    """Σ alpha_i·w_i, to the bit what ``mean`` gives in torch."""

    linear = False
    clipped_to = None

    def init(self) -> State:
        return {}

    def combine(
        self, state: State, broadcast: Model, reports: Reports, alpha: Numbers, simplex: bool
    ) -> tuple[Model, State]:
        if not alpha.any():  # no client counts, for example because all are idle
            return broadcast, state
        arrays = weighted_mean(alpha, [r.arrays for r in reports.items], broadcast.arrays, simplex)
        return dataclasses.replace(broadcast, arrays=arrays), state


class Remote(PlugPoint):
    """The client update of the clients' own apps; the server does not know it."""

    def pulled(self, round: int) -> float:
        return 0.0

    def absorb(self, broadcast: Model, reports: Sequence[Report], population: Population) -> dict[str, Any]:
        return broadcast.extras


@dataclass(frozen=True)
class Optimiser(PlugPoint):
    """A Flower server optimiser. It receives the combined model as if one client had sent it.

    It keeps its own state, so it is called once per round, by the step that ends the round.
    """

    over: flower.FedAvg
    server_round: int = 0
    reply: Message | None = None
    """A reply of this round; it carries the combined model to the optimiser."""

    def init(self) -> State:
        return {}

    def apply(self, state: State, broadcast: Model, aggregate: Model) -> tuple[Model, State]:
        assert self.reply is not None
        record = ArrayRecord({name: Array(value) for name, value in aggregate.arrays.items()})
        metrics = MetricRecord({self.over.weighted_by_key: 1.0})
        self.reply.content = RecordDict({self.over.arrayrecord_key: record, "metrics": metrics})
        applied, _ = self.over.aggregate_train(self.server_round, [self.reply])
        if applied is None:
            return broadcast, state
        arrays = {
            name: applied[name].numpy().astype(old.dtype) if is_float(old) else aggregate.arrays[name]
            for name, old in broadcast.arrays.items()
        }
        return dataclasses.replace(broadcast, arrays=arrays), state
