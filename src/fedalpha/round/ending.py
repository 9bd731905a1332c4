"""The end of a round: a new model is installed or the old one is kept, and the outcome is formed."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, TypeVar, overload

import numpy as np

from fedalpha.round.answers import Answers
from fedalpha.round.gate import Gate
from fedalpha.round.orders import Ids, Measure, Train
from fedalpha.round.state import Algorithm, Outcome, ServerState, Short
from fedalpha.round.weighing import Weighed
from fedalpha.select import Population
from fedalpha.strategies import Cohort, State

Order = TypeVar("Order", Train, Measure)


@dataclass(frozen=True, eq=False)
class Ending:
    """What is needed to end a round: ``selected`` is the selection's next state, ``ids`` are the selected clients."""

    algorithm: Algorithm
    state: ServerState
    population: Population
    selected: State
    ids: Ids
    gate: Gate
    losses: Answers

    @overload
    def stop(self, cohort: Cohort, why: Short, reports: Any = None) -> Outcome: ...
    @overload
    def stop(self, cohort: Cohort, why: Short | Order, reports: Any = None) -> Outcome | Order: ...
    def stop(self, cohort: Cohort, why: Short | Order, reports: Any = None) -> Outcome | Order:
        """The outcome of a round that keeps its model; if ``why`` is an order, that order.

        ``reports`` are recorded in the outcome, but they do not change the model.
        """
        if not isinstance(why, Short):
            return why
        following = dataclasses.replace(self.state, round=self.state.round + 1, select=self.selected)
        items, uploaded = ((), 0) if reports is None else (reports.items, reports.nbytes(self.state.broadcast))
        return self._outcome(following, cohort, Weighed(np.zeros(len(cohort)), {}), items, uploaded, kept=why.reason)

    def install(self, cohort: Cohort, weighed: Weighed, reports: Any) -> Outcome:
        """Combine and apply, then form the next state of the selection and the extras of the next broadcast.

        An aggregate beyond the bound is not applied, so that it does not reach the memory of a server optimiser.
        """
        algorithm, state = self.algorithm, self.state
        weights = weighed.alpha[np.isin(cohort.ids, reports.ids)]
        simplex = algorithm.weigh.traits.simplex
        aggregate, combined = algorithm.combine.combine(state.combine, state.broadcast, reports, weights, simplex)
        bound = algorithm.admission.bound
        if bound is not None and (reason := aggregate.beyond(state.broadcast, bound)):
            return self.stop(cohort, Short(f"the aggregate is not installed: {reason}"), reports)
        installed, applied = algorithm.apply.apply(state.apply, state.broadcast, aggregate)
        extras = algorithm.update.absorb(state.broadcast, reports.items, self.population)
        selected = algorithm.select.learn(
            self.selected, reports.ids, [r.losses.get("train", math.nan) for r in reports.items]
        )
        following = dataclasses.replace(
            state,
            round=state.round + 1,
            broadcast=dataclasses.replace(installed, extras=extras),
            select=selected,
            weigh=weighed.state,
            combine=combined,
            apply=applied,
            clients={**state.clients, **{r.id: r.state for r in reports.items if r.state}},
        )
        return self._outcome(following, cohort, weighed, reports.items, reports.nbytes(state.broadcast))

    def _outcome(
        self,
        following: ServerState,
        cohort: Cohort,
        weighed: Weighed,
        reports: Any,
        uploaded: int,
        kept: str | None = None,
    ) -> Outcome:
        reached = len(self.losses.clients | set(self.ids.tolist()))
        return Outcome(
            following,
            cohort,
            weighed.alpha,
            _losses(cohort, reports),
            sum(r.steps for r in reports),
            bytes_down=reached * self.state.broadcast.nbytes,
            bytes_up=uploaded + 8 * (self.losses.count + sum(len(r.losses) for r in reports)),
            refusals=self.gate.refusals,
            idle=self.gate.idle,
            lost=weighed.lost,
            kept=kept,
        )


def _losses(cohort: Cohort, reports: Any) -> dict[str, list[float | None]]:
    found: dict[str, list[float | None]] = {}
    if cohort.before is not None:
        found["before"] = cohort.before.tolist()
    by_id = {r.id: r.losses for r in reports}
    for kind in ("train", "after"):
        if any(kind in losses for losses in by_id.values()):
            found[kind] = [by_id[i].get(kind) if i in by_id else None for i in cohort.ids.tolist()]
    return found
