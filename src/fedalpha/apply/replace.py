"""Plain replacement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedalpha.apply.base import APPLIES, Apply
from fedalpha.strategies import State
from fedalpha.update import Broadcast


@APPLIES.register(formula="w_{t+1} = aggregate")
@dataclass(frozen=True, eq=False, repr=False)
class replace(Apply):  # noqa: N801 - written in lower case
    """The aggregate becomes the model."""

    text_name: ClassVar[str] = "replace"

    def apply(self, state: State, broadcast: Broadcast, aggregate: Broadcast) -> tuple[Broadcast, State]:
        return aggregate, state
