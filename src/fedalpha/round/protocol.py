"""One round of federated learning: Algorithm 1 with five plug points, as a protocol without input or output.

select → client update → weigh → combine → apply. `advance` returns the next order (ask for losses, train, measure,
learn) or the outcome of the round, from the answers so far. It is a pure function: a driver carries out each order,
adds the answer to `Heard`, and calls `advance` again, which repeats its decisions and goes one step further. So a round
can be saved at any point, and the same code serves engines on this machine and live federations. The round needs NumPy
only: it passes models from one rule to the next and never looks inside them.
"""

from __future__ import annotations

import numpy as np

from fedalpha.round.answers import Answers
from fedalpha.round.choosing import select
from fedalpha.round.cohorts import Known, nobody
from fedalpha.round.ending import Ending
from fedalpha.round.gate import Gate
from fedalpha.round.orders import AskLosses, Heard, Learn, Measure, Order, Train
from fedalpha.round.state import Algorithm, Outcome, ServerState, Short
from fedalpha.round.weighing import Weighed, admit, share_out, training, weigh, weigh_reports
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
    algorithm = algorithm if algorithm.secure is None else algorithm.secure.played(algorithm)
    gate = Gate(algorithm.admission, state.broadcast, seed, state.round, heard)
    losses = Answers(gate, heard, state.round)

    # 1. Select a cohort. Some selections look at losses first.
    chosen = select(algorithm, state, population, seed, heard, losses)
    if isinstance(chosen, AskLosses):
        return chosen
    ids, selected = chosen
    known = Known(algorithm, state, population, losses, heard.arrived)
    ending = Ending(algorithm, state, population, selected, ids, gate, losses)

    # 2. Ask for losses before training, if the strategy weighs by them. Clients that are refused count as absent.
    cohort = known.cohort(ids)
    needs = algorithm.weigh.needs(state.weigh, cohort)
    if "before" in needs and (order := losses.missing(Question(ids))):
        return order
    present = gate.present(ids)
    if short := gate.short(len(present), len(ids)) or nobody(population.sizes(present)):
        return ending.stop(cohort, Short(short))
    cohort = known.cohort(present, needs)

    # 3. Weigh, then train the clients with alpha ≠ 0; or train all clients, then weigh.
    early = needs <= KNOWN_BEFORE_TRAINING and not np.isnan(population.sizes(present)).any()
    weighed = weigh(algorithm, state, cohort, heard, gate) if early else None
    if isinstance(weighed, Measure | Short):
        return ending.stop(cohort, weighed)
    train = training(known, cohort, weighed, needs)
    if heard.reports is None:
        return train
    reports = admit(gate, train, heard)
    if isinstance(reports, Train | Short):
        return ending.stop(cohort, reports)
    found: Weighed | Measure | Train | Short
    if weighed is None:
        cohort, found = weigh_reports(known, reports, needs, heard, gate)
    else:
        rule = algorithm.weigh.in_force(state.weigh, cohort)
        found, reports = share_out(known, weighed, present, rule, train, reports)
    if not isinstance(found, Weighed):
        return ending.stop(cohort, found, reports)

    # 4. Combine, apply, and form the next state. Some combine rules first learn coefficients on the server's data.
    if "server" in algorithm.combine.wants and heard.learnt is None:
        return Learn(reports, found.alpha[np.isin(cohort.ids, reports.ids)])
    return ending.install(cohort, found.learnt(cohort, reports, heard.learnt), reports)
