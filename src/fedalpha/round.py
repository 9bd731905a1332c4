"""One round of federated learning: Algorithm 1 with five plug points.

select → client update → weigh → combine → apply. Every plug point is a frozen object; all that
changes from round to round is in `ServerState`, a value that can be saved and restored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from fedalpha.apply import Apply, replace
from fedalpha.combine import Combine, Reports, mean
from fedalpha.engine import Engine, Job, Sample
from fedalpha.rng import generator
from fedalpha.select import Population, Select, uniform
from fedalpha.select.base import Ids
from fedalpha.strategies import KNOWN_BEFORE_TRAINING, Array, Cohort, FedAvg, Need, State, Strategy
from fedalpha.update import Broadcast, Update, sgd


@dataclass(frozen=True)
class Algorithm:
    """The five plug points."""

    select: Select = field(default_factory=uniform)
    update: Update = field(default_factory=sgd)
    weigh: Strategy = field(default_factory=FedAvg)
    combine: Combine = field(default_factory=mean)
    apply: Apply = field(default_factory=replace)

    def init(self, broadcast: Broadcast, clients: int | None) -> ServerState:
        """The state before round 0."""
        select, weigh = self.select.init(clients), self.weigh.init(clients)
        return ServerState(0, broadcast, select, weigh, self.combine.init(), self.apply.init())


@dataclass(frozen=True, eq=False)
class ServerState:
    """Everything a run needs in order to go on after ``round`` rounds."""

    round: int
    broadcast: Broadcast
    select: State
    weigh: State
    combine: State
    apply: State
    clients: Mapping[int, State] = field(default_factory=dict)
    accuracy: float | None = None
    """The last accuracy on the signal part (validation, or test), for rules that look at it."""


@dataclass(frozen=True, eq=False)
class Played:
    """What happened in a round. ``losses`` by kind, aligned with the cohort, None for who did not report."""

    cohort: Cohort
    alpha: Array
    losses: dict[str, list[float | None]]
    steps: int
    bytes_down: int
    bytes_up: int


def play(
    algorithm: Algorithm, state: ServerState, engine: Engine, population: Population, seed: int
) -> tuple[ServerState, Played]:
    """Play one round.

    Where what the rule needs is known before training, weighing comes first, and clients with
    alpha = 0 neither train nor upload.
    """
    broadcast = state.broadcast
    asked: dict[int, float] = {}
    sampled: dict[int, float] = {}

    def ask(ids: Ids, batch: int | None = None) -> Array:
        """F_i(w_t), or an estimate from ``batch`` samples; computed once per client and round."""
        known = asked if batch is None else sampled
        new = np.array([i for i in ids.tolist() if i not in known], dtype=np.int64)
        if len(new):
            sample = () if batch is None else (Sample(state.round, batch),)
            known.update(zip(new.tolist(), engine.losses(broadcast, new, *sample).tolist(), strict=True))
        return np.array([known[i] for i in ids.tolist()])

    # 1. Select
    rng = generator(seed, "cohort", state.round)
    ids, select_state = algorithm.select.select(state.select, population, ask, rng)
    cohort = Cohort(ids, population.sizes(ids), state.round, state.accuracy, optima=population.optima(ids))
    needs = algorithm.weigh.needs(state.weigh, cohort)
    if "before" in needs:
        cohort = cohort.replace(before=ask(ids))

    # 2. and 3. Weigh, then train those who count; or train everybody, then weigh
    if needs <= KNOWN_BEFORE_TRAINING:
        alpha, weigh_state = algorithm.weigh.weights(state.weigh, cohort)
        counts = alpha != 0
        known = alpha[counts] if algorithm.combine.linear else None
        reports = engine.update(broadcast, Job(state.round, ids[counts], known, state.clients))
    else:
        reports = engine.update(broadcast, Job(state.round, ids, None, state.clients, frozenset(needs)))
        cohort = observe(cohort, broadcast, reports, needs)
        alpha, weigh_state = algorithm.weigh.weights(state.weigh, cohort)
        counts = np.ones(len(ids), dtype=bool)

    # 4. Combine
    simplex = algorithm.weigh.traits.simplex
    aggregate, combine_state = algorithm.combine.combine(state.combine, broadcast, reports, alpha[counts], simplex)

    # 5. Apply, and what selection and client update carry over
    installed, apply_state = algorithm.apply.apply(state.apply, broadcast, aggregate)
    extras = algorithm.update.absorb(broadcast, reports.items, population)
    installed = dataclasses.replace(installed, extras=extras)
    select_state = algorithm.select.learn(select_state, reports.ids, [r.losses["train"] for r in reports.items])

    following = ServerState(
        state.round + 1,
        installed,
        select_state,
        weigh_state,
        combine_state,
        apply_state,
        {**state.clients, **{r.id: r.state for r in reports.items if r.state}},
        state.accuracy,
    )
    reached = len(asked.keys() | sampled.keys() | set(ids.tolist()))
    upload = len(reports.items) * sum(t.nbytes for t in broadcast.parameters.values())
    upload += sum(t.nbytes for r in reports.items for t in r.extras.values())
    return following, Played(
        cohort,
        alpha,
        _losses(cohort, reports),
        sum(r.steps for r in reports.items),
        bytes_down=reached * broadcast.nbytes,
        bytes_up=upload + 8 * (len(asked) + len(sampled) + sum(len(r.losses) for r in reports.items)),
    )


def observe(cohort: Cohort, broadcast: Broadcast, reports: Reports, needs: frozenset[Need]) -> Cohort:
    """The cohort with what is known after training: losses, local steps, norms, the Gram matrix."""
    seen: dict[str, Any] = {}
    for need in needs & {"train", "after"}:
        seen[need] = np.array([r.losses[need] for r in reports.items])
    if "steps" in needs:
        seen["steps"] = np.array([r.steps for r in reports.items], dtype=np.float64)
    if needs & {"norms", "gram"}:
        gram = np.zeros((len(cohort), len(cohort)))
        for name, old in broadcast.parameters.items():
            if old.is_floating_point():
                moves = torch.stack([m[name].double() - old.double() for m in reports.models()]).flatten(1)
                gram += (moves @ moves.T).numpy()
        seen["norms"] = np.sqrt(np.diagonal(gram))
        if "gram" in needs:
            seen["gram"] = gram
    return cohort.replace(**seen)


def _losses(cohort: Cohort, reports: Reports) -> dict[str, list[float | None]]:
    found: dict[str, list[float | None]] = {}
    if cohort.before is not None:
        found["before"] = cohort.before.tolist()
    by_id = {r.id: r.losses for r in reports.items}
    for kind in ("train", "after"):
        if any(kind in losses for losses in by_id.values()):
            found[kind] = [by_id[i].get(kind) if i in by_id else None for i in cohort.ids.tolist()]
    return found
