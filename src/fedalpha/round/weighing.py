"""The weights of a cohort: before training, after training, and after clients were lost."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedalpha.round.cohorts import Known, observe
from fedalpha.round.gate import Gate
from fedalpha.round.orders import Heard, Ids, Measure, Nothing, Train
from fedalpha.round.state import Algorithm, ServerState, Short
from fedalpha.strategies import Array, Cohort, Need, State, Strategy, TooFewError
from fedalpha.strategies import weigh as checked_weights


@dataclass(frozen=True, eq=False)
class Weighed:
    """The weights of a cohort, the strategy's next state, and how many clients were ``lost`` after weighing."""

    alpha: Array
    state: State
    lost: int = 0

    def learnt(self, cohort: Cohort, reports: Any, coefficients: Array | None) -> Weighed:
        """The coefficients that the combine rule learnt, in place of the weights; unchanged if it learnt none."""
        if coefficients is None:
            return self
        alpha = np.zeros(len(cohort))
        alpha[np.isin(cohort.ids, reports.ids)] = coefficients
        return dataclasses.replace(self, alpha=alpha)


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


def weigh_reports(
    known: Known, reports: Any, needs: frozenset[Need], heard: Heard, gate: Gate
) -> tuple[Cohort, Weighed | Measure | Short]:
    """The clients that reported, with what is known of them after training, and their weights."""
    cohort = known.cohort(reports.ids, needs)
    seen = observe(known.algorithm, cohort, known.population, known.state.broadcast, reports, needs)
    if isinstance(seen, Short):
        return cohort, seen
    return seen, weigh(known.algorithm, known.state, seen, heard, gate)


def training(known: Known, cohort: Cohort, weighed: Weighed | None, needs: frozenset[Need]) -> Train:
    """The order to train: for the clients with alpha ≠ 0, or for all of them if they are not weighed yet."""
    algorithm, state = known.algorithm, known.state
    wants = algorithm.combine.wants
    if weighed is None:
        return Train(state.round, cohort.ids, None, state.clients, wants | needs)
    counts = weighed.alpha != 0
    combine = algorithm.combine
    alpha = combine.weights(weighed.alpha[counts]) if combine.linear else None
    rule = algorithm.weigh.in_force(state.weigh, cohort)
    hold = rule.ceiling < 1 and not combine.keeps_lost_weight
    return Train(state.round, cohort.ids[counts], alpha, state.clients, wants, hold, combine.alone)


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
    if short := gate.short(len(reports.items), len(train.ids)):
        return Short(short)
    return reports.rebased(heard.sent, gate.broadcast) if heard.sent and heard.rebase else reports


def _one_by_one(train: Train) -> Train:
    return dataclasses.replace(train, alpha=None)


def share_out(
    known: Known, weighed: Weighed, ids: Ids, rule: Strategy, train: Train, reports: Any
) -> tuple[Weighed | Train | Short, Any]:
    """The weights and the reports after some clients that were weighed have been lost.

    A lost client weighs 0, and the weights of the others follow from `Strategy.renormalise`. With a linear combine
    rule the models are summed with the weights that were ordered, and the sum is divided by the total weight that
    arrived: the bytes are the same whether models were collected or summed on the way. If the rule renormalises
    otherwise (a cap), the models are ordered one by one. Some combine rules leave that weight with w_t.
    """
    alpha, here = weighed.alpha, np.isin(ids, reports.ids)
    lost = len(train.ids) - len(reports.ids)
    if here[alpha != 0].all() or not alpha[here].any():
        return Weighed(np.where(here, alpha, 0.0), weighed.state, lost), reports
    broadcast = known.state.broadcast
    if known.algorithm.combine.keeps_lost_weight:
        left = np.where(here, alpha, 0.0)
        return Weighed(left, weighed.state, lost), reports.total_of(train.ids, train.alpha, train.alone, broadcast)
    try:
        shared = rule.renormalise(alpha[here])
    except TooFewError as error:
        return Short(str(error)), reports
    mass = math.fsum(alpha[here].tolist()) if rule.traits.simplex else 1.0
    if train.alpha is not None and np.array_equal(shared, alpha[here] / mass):
        reports = reports.total_of(train.ids, train.alpha, train.alone, broadcast)
        reports = reports.divided(mass) if rule.traits.simplex else reports
    elif reports.summed and reports.final:
        why = f"a client was lost, and {rule} cannot share out its weight where only a sum is known"
        return Short(why), reports
    elif reports.summed:
        return dataclasses.replace(_one_by_one(train), ids=reports.ids), reports
    left = np.zeros(len(alpha))
    left[here] = shared
    return Weighed(left, weighed.state, lost), reports
