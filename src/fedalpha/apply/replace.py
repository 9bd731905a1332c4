"""Plain replacement."""

from __future__ import annotations

from fedalpha.apply.base import APPLIES, Apply
from fedalpha.strategies import State
from fedalpha.update import Broadcast


@APPLIES.register(formula="w_{t+1} = aggregate")
class replace(Apply):
    """The aggregate becomes the model."""

    def apply(self, state: State, broadcast: Broadcast, aggregate: Broadcast) -> tuple[Broadcast, State]:
        return aggregate, state
