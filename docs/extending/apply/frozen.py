"""A part of the model that never changes."""

import dataclasses
from dataclasses import field

from fedalpha.apply import APPLIES, Apply
from fedalpha.strategies import State
from fedalpha.update import Broadcast


@APPLIES.register(formula="w_{t+1} = aggregate, w_t where frozen", examples=("frozen(output)",))
class frozen(Apply):
    """The aggregate becomes the model, except for the tensors whose names begin with ``prefix``."""

    prefix: str = field(metadata={"positional": True})

    def apply(self, state: State, broadcast: Broadcast, aggregate: Broadcast) -> tuple[Broadcast, State]:
        kept = {name: value for name, value in broadcast.parameters.items() if name.startswith(self.prefix)}
        return dataclasses.replace(aggregate, parameters={**aggregate.parameters, **kept}), state
