"""The selection of a cohort, and the losses that it looks at."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedalpha.round.answers import Answers
from fedalpha.round.orders import AskLosses, Ids
from fedalpha.select import Population, Select
from fedalpha.strategies import State


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
