"""The selection of a cohort, and the losses that it looks at."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedalpha.rng import generator
from fedalpha.round.answers import Answers
from fedalpha.round.orders import AskLosses, Heard, Ids
from fedalpha.round.state import Algorithm, ServerState
from fedalpha.select import Population, Select
from fedalpha.strategies import State


def select(
    algorithm: Algorithm, state: ServerState, population: Population, seed: int, heard: Heard, losses: Answers
) -> AskLosses | tuple[Ids, State]:
    """The cohort of a round and the selection's next state, or the losses that the selection asks for first.

    On a server that does not wait, the cohort is the clients that have delivered.
    """
    if heard.arrived is not None:
        return np.array(sorted(heard.arrived), dtype=np.int64), state.select
    among = population if heard.among is None else heard.among
    return choose(algorithm.select, state.select, among, lambda: generator(seed, "cohort", state.round), losses)


def choose(
    select: Select, state: State, population: Population, draw: Callable[[], np.random.Generator], losses: Answers
) -> AskLosses | tuple[Ids, State]:
    """The order for losses that the selection looks at and that are missing; or the cohort and the next state.

    ``draw`` gives the same generator each time.
    """
    question = select.ask(state, population, draw())
    if question is not None and (order := losses.missing(question)):
        return order
    return select.select(state, population, losses.to(question), draw())
