"""The interface of combine rules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedalpha.combine.sums import Sum, weighted_sum
from fedalpha.models import Parameters
from fedalpha.strategies import Array, State
from fedalpha.text import Registry, Spelled
from fedalpha.update import Broadcast, Report


@dataclass(frozen=True, eq=False)
class Reports:
    """The reports of a round, sorted by client id; ``total`` is Σ alpha_i·w_i where the engine has summed."""

    items: Sequence[Report]
    total: Sum | None = None

    @cached_property
    def ids(self) -> NDArray[np.int64]:
        return np.array([r.id for r in self.items], dtype=np.int64)

    def models(self) -> list[Parameters]:
        """Every client's parameters; only there if the rule is not linear or alpha came after training."""
        found = [r.parameters for r in self.items if r.parameters is not None]
        if len(found) != len(self.items):
            raise ValueError("these reports were summed on the way; a rule that needs every model must not be linear")
        return found

    def weighted_sum(self, alpha: Array) -> Parameters:
        """Σ alpha_i·w_i: floats in float64, integer buffers from the heaviest client."""
        return (self.total or weighted_sum(alpha, self.models())).values


class Combine(Spelled, ABC):
    """The *combine* plug point."""

    linear: bool = False
    """Whether Σ alpha_i·w_i is all that the rule looks at."""

    def init(self) -> State:
        return {}

    @abstractmethod
    def combine(
        self, state: State, broadcast: Broadcast, reports: Reports, alpha: Array, simplex: bool
    ) -> tuple[Broadcast, State]:
        """The aggregate, as a broadcast that *apply* may install.

        ``alpha`` is aligned with ``reports``. Off the simplex alpha are coefficients of
        w_t + Σ alpha_i (w_i − w_t). Pure.
        """


COMBINES: Registry[Combine] = Registry("combine rule", Combine)  # type: ignore[type-abstract]
