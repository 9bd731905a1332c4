"""The weights of a cohort: before training, after training, and after clients were lost."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedalpha.round.gate import Gate
from fedalpha.round.orders import Heard, Ids, Measure, Nothing, Train
from fedalpha.round.state import Algorithm, ServerState
from fedalpha.select import Population, Select
from fedalpha.strategies import Array, Cohort, Need, State, Strategy, TooFewError
from fedalpha.strategies import weigh as checked_weights
from fedalpha.strategies.cohort import table


@dataclass(frozen=True, eq=False)
class Weighed:
    """The weights of a cohort, and the weighing rule's next state."""

    alpha: Array
    state: State

    def learnt(self, cohort: Cohort, reports: Any, coefficients: Array | None) -> Weighed:
        """The coefficients that the combine rule learnt, in place of the weights; unchanged if it learnt none."""
        if coefficients is None:
            return self
        alpha = np.zeros(len(cohort))
        alpha[np.isin(cohort.ids, reports.ids)] = coefficients
        return dataclasses.replace(self, alpha=alpha)


@dataclass(frozen=True)
class Short:
    """Why the model must be kept: too few clients for the quorum, or for the strategy (a cap below 1/n)."""

    reason: str


def gather(
    population: Population,
    ids: Ids,
    state: ServerState,
    before: Array | None = None,
    design: Array | None = None,
    stale: Mapping[int, int] | None = None,
) -> Cohort:
    """The cohort of these clients, with what is known of them before training. An unknown size counts as 1."""
    sizes, optima = np.nan_to_num(population.sizes(ids), nan=1.0), population.optima(ids)
    if not sizes.any():  # a cohort needs a positive size; the round then stops because of `nobody`
        sizes = np.ones(len(ids))
    late = None if stale is None else np.array([stale[i] for i in ids.tolist()], dtype=np.float64)
    return Cohort(ids, sizes, state.round, state.accuracy, before=before, optima=optima, design=design, staleness=late)


def design(select: Select, population: Population, ids: Ids) -> Array:
    """p_i/π_i of these clients: the share of all data over the chance to be selected (Horvitz–Thompson weights)."""
    everybody = population.named(np.arange(population.clients))
    chances, sizes = select.chances(population), population.sizes(everybody)
    if chances is None:
        raise ValueError(f"the chances of {select} to select a client are not known; use uniform(C=…) or by_size(C=…)")
    if np.isnan(sizes).any():
        raise ValueError("unbiased weights need the sizes of all clients, and some are not known yet")
    places = np.searchsorted(everybody, ids)
    return np.asarray(sizes[places] / math.fsum(sizes.tolist()) / chances[places])


def nobody(sizes: Array) -> str | None:
    """Why the model must be kept if no client has data; else None. An unknown size (NaN) counts as data."""
    return None if sizes.any() else "no client of the cohort has data (all sizes are 0), so there is no client to weigh"


def observe(
    algorithm: Algorithm,
    cohort: Cohort,
    population: Population,
    broadcast: Any,
    reports: Any,
    needs: frozenset[Need],
) -> Cohort | Short:
    """The cohort with what is known after training: losses, steps, norms, Gram matrix, class counts, unknown sizes."""
    seen: dict[str, Any] = {}
    sizes = population.sizes(cohort.ids)
    if np.isnan(sizes).any():
        told = np.array([r.samples for r in reports.items], dtype=np.float64)
        seen["sizes"] = sizes = np.where(np.isnan(sizes), told, sizes)
        if reason := nobody(sizes):
            return Short(reason)
    for need in needs & {"train", "after"}:
        seen[need] = np.array([r.losses[need] for r in reports.items])
    if "steps" in needs:
        seen["steps"] = np.array([r.steps for r in reports.items], dtype=np.float64)
        seen["pull"] = _pulled(algorithm, cohort)
    if "labels" in needs:
        seen["labels"] = table([r.labels for r in reports.items])
    if "cosines" in needs:
        seen["cosines"] = reports.cosines(broadcast)
    if needs & {"norms", "gram"}:
        gram = reports.gram(broadcast)
        seen["norms"] = np.sqrt(np.diagonal(gram))
        if "gram" in needs:
            seen["gram"] = gram
    return cohort.replace(**seen)


def _pulled(algorithm: Algorithm, cohort: Cohort) -> float | Array:
    """η·μ of the local steps, in the version from which each client trained."""
    if cohort.staleness is None or not cohort.staleness.any():
        return float(algorithm.update.pulled(cohort.round))
    return np.array([algorithm.update.pulled(cohort.round - int(late)) for late in cohort.staleness.tolist()])


def weigh(
    algorithm: Algorithm, state: ServerState, cohort: Cohort, heard: Heard, gate: Gate
) -> Weighed | Measure | Short:
    """The weights; or what the server has to measure first; or why the model must be kept."""
    try:
        weighed = Weighed(*checked_weights(algorithm.weigh, state.weigh, cohort))
    except TooFewError as error:
        if gate.refusals or heard.few:  # the remaining clients are too few for the rule
            return Short(str(error))
        raise
    if not algorithm.reevaluate:
        return weighed
    places = np.argsort(-weighed.alpha, kind="stable")[: algorithm.reevaluate].tolist()
    found = _remeasured(cohort, places, heard)
    if isinstance(found, Measure):
        return found
    return Weighed(*checked_weights(algorithm.weigh, state.weigh, found))


def _remeasured(cohort: Cohort, places: list[int], heard: Heard) -> Cohort | Measure:
    """The cohort with the losses of the clients at ``places`` as the server measures them on its own data.

    F_i(w_t) becomes the server's loss of w_t, the losses after training that of the client's model. So the largest
    weights do not depend on what their clients report.
    """
    known = {"before": cohort.before, "train": cohort.train, "after": cohort.after}
    changes = {kind: losses.copy() for kind, losses in known.items() if losses is not None}
    models = heard.reports is not None and not heard.reports.summed

    def subject(kind: str, place: int) -> int | None:
        return int(cohort.ids[place]) if kind != "before" and models else None

    wanted = {subject(kind, place): None for place in places for kind in changes}
    if unknown := tuple(of for of in wanted if of not in heard.measured):
        return Measure(unknown)
    largest = np.finfo(np.float64).max
    for kind, losses in changes.items():
        for place in places:
            losses[place] = np.nan_to_num(heard.measured[subject(kind, place)], nan=np.inf, posinf=np.inf)
        changes[kind] = np.minimum(losses, largest)
    return cohort.replace(**changes)


def admit(gate: Gate, train: Train, heard: Heard) -> Any | Train | Short:
    """The accepted reports; or an order for the same updates one by one; or why the model is kept.

    A single client cannot be removed from a sum. If a sum cannot be used, the same clients train again and each
    sends its own model. Client updates are pure, so the models are the same as before. A live federation does not
    train again: there each model was checked before it was added.
    """
    reports = heard.reports
    for id, problem in sorted(heard.problems.items()):
        gate.refuse(id, problem)
    if isinstance(reports, Nothing):
        return Short(reports.reason)
    if reports.summed and reports.items:
        if not gate.sound(reports):
            return Short("the sum of the models is not finite") if reports.final else _one_by_one(train)
    else:
        reports = reports.only(gate.admit(reports.items, train.ids, train.wanted))
    gate.missing(reports.ids, train.ids)
    short = gate.short(len(reports.items), len(train.ids))
    return reports if short is None else Short(short)


def _one_by_one(train: Train) -> Train:
    return dataclasses.replace(train, alpha=None)


def share_out(
    weighed: Weighed, ids: Ids, rule: Strategy, train: Train, reports: Any
) -> tuple[Weighed, Any] | Train | Short:
    """The weights and the reports after some clients that were weighed have been lost.

    A lost client weighs 0, and the weights of the others follow from `Strategy.renormalise`. With a linear combine
    rule the models are summed with the weights that were ordered, and the sum is divided by the total weight that
    arrived: the bytes are the same whether models were collected or summed on the way. If the rule renormalises
    otherwise (a cap), the models are ordered one by one.
    """
    alpha, here = weighed.alpha, np.isin(ids, reports.ids)
    if here[alpha != 0].all() or not alpha[here].any():
        return Weighed(np.where(here, alpha, 0.0), weighed.state), reports
    try:
        shared = rule.renormalise(alpha[here])
    except TooFewError as error:
        return Short(str(error))
    mass = math.fsum(alpha[here].tolist()) if rule.traits.simplex else 1.0
    if train.alpha is not None and np.array_equal(shared, alpha[here] / mass):
        reports = reports.total_of(train.ids, train.alpha)
        reports = reports.divided(mass) if rule.traits.simplex else reports
    elif reports.summed and reports.final:
        return Short(f"a client was lost, and {rule} cannot share out its weight where only a sum is known")
    elif reports.summed:
        return dataclasses.replace(_one_by_one(train), ids=reports.ids)
    left = np.zeros(len(alpha))
    left[here] = shared
    return Weighed(left, weighed.state), reports
