"""One round of federated learning: Algorithm 1 with five plug points.

select → client update → weigh → combine → apply. Every plug point is a frozen object; all that
changes from round to round is in `ServerState`, a value that can be saved and restored. What clients
send passes a gate (`fedalpha.admission`) before it is weighed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from fedalpha import privacy
from fedalpha.admission import Admission, Gate, Refusal, TooFewClientsError, survivors
from fedalpha.apply import Apply, replace
from fedalpha.combine import Combine, Reports, mean
from fedalpha.engine import Engine, Job, Sample
from fedalpha.faults import Fault, Faulty
from fedalpha.rng import generator
from fedalpha.select import Population, Select, uniform
from fedalpha.select.base import Ask, Ids
from fedalpha.strategies import KNOWN_BEFORE_TRAINING, Array, Cohort, FedAvg, Need, State, Strategy
from fedalpha.strategies import weigh as checked_weights
from fedalpha.tolerance import Influence, influence
from fedalpha.update import Broadcast, Update, sgd
from fedalpha.update.page import one_coin


@dataclass(frozen=True)
class Algorithm:
    """The five plug points, and how the server guards itself.

    ``reevaluate``: so many of the heaviest clients are weighed again with losses that the server measures
    on its own (validation) data. ``liars``: the number f of clients whose influence the history states.
    ``fault``: what goes wrong on purpose.
    """

    select: Select = field(default_factory=uniform)
    update: Update = field(default_factory=sgd)
    weigh: Strategy = field(default_factory=FedAvg)
    combine: Combine = field(default_factory=mean)
    apply: Apply = field(default_factory=replace)
    admission: Admission = field(default_factory=Admission)
    reevaluate: int = 0
    liars: int = 1
    fault: Fault | None = None

    def __post_init__(self) -> None:
        for name in ("reevaluate", "liars"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} = {getattr(self, name)}; give a number of clients ≥ 0")
        privacy.check(self.weigh, self.combine, self.select, self.update, self.reevaluate)
        one_coin(self.select, self.update)

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
    """What happened in a round. ``losses`` by kind, aligned with the cohort, None for who did not report.

    ``kept`` says why the model was kept (too few clients; alpha is 0 then), ``influence`` what any
    ``liars`` clients could do.
    """

    cohort: Cohort
    alpha: Array
    losses: dict[str, list[float | None]]
    steps: int
    bytes_down: int
    bytes_up: int
    refusals: Sequence[Refusal] = ()
    idle: Sequence[int] = ()
    influence: Influence | None = None
    kept: str | None = None


def play(
    algorithm: Algorithm, state: ServerState, engine: Engine, population: Population, seed: int
) -> tuple[ServerState, Played]:
    """Play one round.

    Where what the rule needs is known before training, weighing comes first, and clients with
    alpha = 0 neither train nor upload. A client that is refused before weighing is as if absent; one
    that is lost afterwards is renormalised away; with fewer clients than the quorum the model is kept.
    """
    broadcast, simplex = state.broadcast, algorithm.weigh.traits.simplex
    if algorithm.fault is not None:
        engine = Faulty(engine, algorithm.fault, seed, state.round, population.clients)
    gate = Gate(algorithm.admission, broadcast, seed, state.round)
    asked: dict[int, float] = {}
    sampled: dict[int, float] = {}

    def ask(ids: Ids, batch: int | None = None) -> Array:
        """F_i(w_t), or an estimate from ``batch`` samples; once per client and round, NaN for who is refused for it."""
        known = asked if batch is None else sampled
        new = np.array([i for i in ids.tolist() if i not in known], dtype=np.int64)
        if len(new):
            sample = None if batch is None else Sample(state.round, batch)
            losses = gate.losses(new, engine.losses(broadcast, new, sample))
            known.update(zip(new.tolist(), losses.tolist(), strict=True))
        return np.array([known[i] for i in ids.tolist()])

    def train(ids: Ids, alpha: Array | None, wanted: frozenset[Need] = frozenset()) -> Reports:
        """The reports that pass the gate."""
        job = Job(state.round, ids, alpha, state.clients, frozenset(wanted))
        again = dataclasses.replace(job, alpha=None)
        return gate.admit(engine.update(broadcast, job), ids, lambda: engine.update(broadcast, again))

    def weigh(cohort: Cohort, reports: Reports | None = None) -> tuple[Array, State]:
        try:
            alpha, weigh_state = checked_weights(algorithm.weigh, state.weigh, cohort)
        except ValueError as error:
            if gate.refusals:  # those who are left cannot carry what the rule asks for, such as a cap below 1/n
                raise TooFewClientsError(str(error)) from None
            raise
        if algorithm.reevaluate:
            cohort = remeasured(cohort, alpha, algorithm.reevaluate, engine, broadcast, reports)
            alpha, weigh_state = checked_weights(algorithm.weigh, state.weigh, cohort)
        return alpha, weigh_state

    # 1. Select
    rng = generator(seed, "cohort", state.round)
    ids, select_state = algorithm.select.select(state.select, population, ask, rng)
    following = dataclasses.replace(state, round=state.round + 1, select=select_state)
    cohort, alpha, reports, kept = gather(population, ids, state), np.zeros(len(ids)), Reports([]), None
    lost = 0
    needs = algorithm.weigh.needs(state.weigh, cohort)
    try:
        # 2. and 3. Weigh, then train those who count; or train everybody, then weigh
        before = ask if "before" in needs else None
        cohort = gather(population, gate.present(ids, before), state, before)
        if needs <= KNOWN_BEFORE_TRAINING:
            alpha, weigh_state = weigh(cohort)
            counts = alpha != 0
            reports = train(cohort.ids[counts], alpha[counts] if algorithm.combine.linear else None)
            lost = int(counts.sum()) - len(reports.items)
            rule = algorithm.weigh.in_force(state.weigh, cohort)
            reports, alpha = survivors(reports, alpha, cohort.ids, rule, lambda left: train(left, None))
        else:
            reports = train(cohort.ids, None, needs)
            cohort = observe(gather(population, reports.ids, state, before), broadcast, reports, needs)
            alpha, weigh_state = weigh(cohort, reports)

        # 4. Combine
        weights = alpha[np.isin(cohort.ids, reports.ids)]
        aggregate, combine_state = algorithm.combine.combine(state.combine, broadcast, reports, weights, simplex)

        # 5. Apply, and what selection and client update carry over
        installed, apply_state = algorithm.apply.apply(state.apply, broadcast, aggregate)
        extras = algorithm.update.absorb(broadcast, reports.items, population)
        installed = dataclasses.replace(installed, extras=extras)
        select_state = algorithm.select.learn(select_state, reports.ids, [r.losses["train"] for r in reports.items])
        clients = {**state.clients, **{r.id: r.state for r in reports.items if r.state}}
        following = ServerState(
            state.round + 1, installed, select_state, weigh_state, combine_state, apply_state, clients, state.accuracy
        )
    except TooFewClientsError as few:
        kept, alpha = str(few), np.zeros(len(cohort))

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
        refusals=gate.refusals,
        idle=gate.idle,
        influence=None if kept else influence(algorithm.weigh, algorithm.combine, cohort, alpha, algorithm.liars, lost),
        kept=kept,
    )


def gather(population: Population, ids: Ids, state: ServerState, before: Ask | None = None) -> Cohort:
    """The cohort of these clients, with what is known of them before training."""
    losses = None if before is None else before(ids)
    sizes, optima = population.sizes(ids), population.optima(ids)
    return Cohort(ids, sizes, state.round, state.accuracy, before=losses, optima=optima)


def remeasured(
    cohort: Cohort, alpha: Array, count: int, engine: Engine, broadcast: Broadcast, reports: Reports | None
) -> Cohort:
    """The cohort with the losses of the ``count`` heaviest clients as the server measures them on its own data.

    F_i(w_t) becomes the server's loss of w_t, the losses after training that of the client's model: who
    weighs most no longer does so by its own word.
    """
    heaviest = np.argsort(-alpha, kind="stable")[:count]
    known = {"before": cohort.before, "train": cohort.train, "after": cohort.after}
    changes = {kind: losses.copy() for kind, losses in known.items() if losses is not None}
    for place in heaviest.tolist():
        for kind, losses in changes.items():
            sent = broadcast
            if kind != "before" and reports is not None and (model := reports.items[place].parameters) is not None:
                sent = dataclasses.replace(broadcast, parameters=model)
            losses[place] = np.nan_to_num(engine.evaluate(sent, "validation").loss, nan=np.inf, posinf=np.inf)
    largest = np.finfo(np.float64).max
    return cohort.replace(**{kind: np.minimum(losses, largest) for kind, losses in changes.items()})


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
