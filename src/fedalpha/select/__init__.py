"""*Select*: who takes part in a round.

A selection is a frozen object; ``select(state, population, ask, rng) -> (ids, state)`` returns
sorted client ids. ``ask(ids)`` gives the losses of the current model on those clients before
training, for rules that look before they choose.
"""

from __future__ import annotations

from fedalpha.select.base import SELECTIONS, Ask, Population, Select
from fedalpha.select.by_loss import loss_proportional, power_of_choice
from fedalpha.select.fedpage import fedpage
from fedalpha.select.uniform import uniform

__all__ = ["SELECTIONS", "Ask", "Population", "Select", "fedpage", "loss_proportional", "power_of_choice", "uniform"]
