"""Soft rules whose κ_max/κ_min has a limit, the base of `cool` and `temper`."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from fedalpha.strategies.base import State, Strategy
from fedalpha.strategies.cohort import Cohort
from fedalpha.strategies.combinator import Combinator, parsed
from fedalpha.strategies.simplex import Array
from fedalpha.strategies.soft import Soft, tilt


class Tempered(Combinator):
    """A soft rule at the temperature 1/T = min(1/T_0, ln(limit)/(max x − min x)).

    Then κ_max/κ_min = exp((max x − min x)/T) ≤ limit, where T_0 is the rule's own temperature:
    write T=0 to always use the limit.
    """

    @abstractmethod
    def log_limit(self, round: int) -> float:
        """ln of the largest κ_max/κ_min that the round allows (above 0)."""

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        (rule,) = self.members
        assert isinstance(rule, Soft)
        excess, inner = rule.excess(state["members"][0], cohort)
        prior = cohort.prior(rule.prior)
        with np.errstate(over="ignore"):
            spread = float(np.ptp(excess[prior > 0]))
        coolest = spread / self.log_limit(cohort.round)
        return tilt(prior, rule.sign * excess, max(rule.T, coolest)), {"members": [dict(inner)]}


def soft_member(owner: str, rule: Strategy | str) -> tuple[Strategy, ...]:
    """The one member of a combinator that needs a temperature."""
    members = parsed(owner, (rule,), least=1)
    if not isinstance(members[0], Soft):
        raise ValueError(f"{owner}: {members[0]} has no temperature; give a soft rule or use fade")
    return members
