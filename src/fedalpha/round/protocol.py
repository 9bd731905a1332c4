"""One round of federated learning: Algorithm 1 with five plug points, as a protocol without input or output.

select → client update → weigh → combine → apply. `advance` returns the next order (ask for losses, train, measure,
learn) or the outcome of the round, from the answers so far. It is a pure function: a driver carries out each order,
adds the answer to `Heard`, and calls `advance` again, which repeats its decisions and goes one step further. So a round
can be saved at any point, and the same code serves engines on this machine and live federations. The round needs NumPy
only: it passes models from one rule to the next and never looks inside them.
"""

from __future__ import annotations

import numpy as np

from fedalpha.rng import generator
from fedalpha.round.answers import Answers
from fedalpha.round.choosing import choose
from fedalpha.round.ending import Ending
from fedalpha.round.gate import Gate
from fedalpha.round.orders import AskLosses, Heard, Learn, Measure, Order, Train
from fedalpha.round.state import Algorithm, Outcome, ServerState
from fedalpha.round.weighing import Short, Weighed, admit, design, gather, nobody, observe, share_out, weigh
from fedalpha.select import Population, Question
from fedalpha.strategies import KNOWN_BEFORE_TRAINING


def advance(
    algorithm: Algorithm, state: ServerState, population: Population, seed: int, heard: Heard
) -> Order | Outcome:
    """The next order of a round, or its outcome. Pure.

    If the strategy needs only what is known before training, weighing comes first, and clients with alpha = 0
    neither train nor upload. A client that is refused before weighing counts as absent. If a client is lost
    afterwards, the weights of the others are renormalised. With fewer clients than the quorum the model is kept.
    """
    if algorithm.secure is not None:
        algorithm = algorithm.secure.played(algorithm)
    gate = Gate(algorithm.admission, state.broadcast, seed, state.round, heard)
    losses = Answers(gate, heard, state.round)

    # 1. Select a cohort. Some selections look at losses first. A buffered server takes the clients that delivered.
    if heard.arrived is None:
        among = population if heard.among is None else heard.among
        chosen = choose(algorithm.select, state.select, among, lambda: generator(seed, "cohort", state.round), losses)
    else:
        chosen = np.array(sorted(heard.arrived), dtype=np.int64), state.select
    if isinstance(chosen, AskLosses):
        return chosen
    ids, selected = chosen
    stale = heard.arrived
    cohort = gather(population, ids, state, stale=stale)
    ending = Ending(algorithm, state, population, selected, ids, gate, losses)

    # 2. Ask for losses before training, if the strategy weighs by them. Clients that are refused count as absent.
    needs = algorithm.weigh.needs(state.weigh, cohort)
    if "staleness" in needs and stale is None:
        stale = dict.fromkeys(ids.tolist(), 0)
    before = Question(ids) if "before" in needs else None
    if before is not None and (order := losses.missing(before)):
        return order
    present = gate.present(ids)
    if short := gate.short(len(present), len(ids)) or nobody(population.sizes(present)):
        return ending.stop(cohort, Short(short))
    shares = design(algorithm.select, population, present) if "design" in needs else None
    cohort = gather(population, present, state, losses.to(before and Question(present)), shares, stale)

    # 3. Weigh, then train the clients with alpha ≠ 0; or train all clients, then weigh.
    weighed: Weighed | Measure | Short | None = None
    wants = algorithm.combine.wants
    train = Train(state.round, present, None, state.clients, wants | needs)
    if needs <= KNOWN_BEFORE_TRAINING and not np.isnan(population.sizes(present)).any():
        weighed = weigh(algorithm, state, cohort, heard, gate)
        if not isinstance(weighed, Weighed):
            return ending.stop(cohort, weighed)
        counts = weighed.alpha != 0
        alpha = weighed.alpha[counts] if algorithm.combine.linear else None
        rule = algorithm.weigh.in_force(state.weigh, cohort)
        train = Train(state.round, present[counts], alpha, state.clients, wants, hold=rule.ceiling < 1)
    if heard.reports is None:
        return train
    reports = admit(gate, train, heard)
    if isinstance(reports, Short | Train):
        return ending.stop(cohort, reports)
    if heard.sent and heard.rebase:
        reports = reports.rebased(heard.sent, state.broadcast)
    if isinstance(weighed, Weighed):
        shared = share_out(weighed, present, rule, train, reports)
        if not isinstance(shared, tuple):
            return ending.stop(cohort, shared, reports)
        weighed, reports = shared
        lost = len(train.ids) - len(reports.items)
    else:
        shares = None if shares is None else shares[np.isin(present, reports.ids)]
        cohort = gather(population, reports.ids, state, losses.to(before and Question(reports.ids)), shares, stale)
        seen = observe(algorithm, cohort, population, state.broadcast, reports, needs)
        if isinstance(seen, Short):
            return ending.stop(cohort, seen, reports)
        cohort, weighed = seen, weigh(algorithm, state, seen, heard, gate)
        if not isinstance(weighed, Weighed):
            return ending.stop(cohort, weighed, reports)
        lost = 0

    if "server" in wants and heard.learnt is None:
        return Learn(reports, weighed.alpha[np.isin(cohort.ids, reports.ids)])

    # 4. Combine. 5. Apply, and form the next state of selection and client update.
    return ending.install(cohort, weighed.learnt(cohort, reports, heard.learnt), reports, lost)
