"""*Select*: which clients take part in a round.

A selection is a frozen object; ``select(state, population, losses, rng) -> (ids, state)`` returns sorted client
ids. A rule that selects by losses also has ``ask(state, population, rng)``, which returns the clients to ask for them.
"""

from __future__ import annotations

from fedalpha.select.base import SELECTIONS, Population, Question, Select
from fedalpha.select.by_loss import loss_proportional, power_of_choice
from fedalpha.select.by_size import by_size
from fedalpha.select.fedpage import fedpage
from fedalpha.select.uniform import uniform

__all__ = [
    "SELECTIONS",
    "Population",
    "Question",
    "Select",
    "by_size",
    "fedpage",
    "loss_proportional",
    "power_of_choice",
    "uniform",
]
