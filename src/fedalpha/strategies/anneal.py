"""`anneal`: a gradual change from one rule to another, or from one temperature to another."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from fedalpha.strategies.arguments import choice
from fedalpha.strategies.base import PAPER, STRATEGIES, State, Strategy
from fedalpha.strategies.cohort import Cohort, Need
from fedalpha.strategies.combinator import Combinator, parsed
from fedalpha.strategies.simplex import Array
from fedalpha.strategies.soft import Soft

SCHEDULES = ("linear", "cosine")


def progress(schedule: str, round: int, rounds: int) -> float:
    """λ_t: 0 in round 0, 1 from round ``rounds`` on."""
    share = min(1.0, round / rounds)
    return share if schedule == "linear" else (1 - math.cos(math.pi * share)) / 2 if share < 1 else 1.0


class AnnealMix(Combinator, name="anneal"):
    """alpha = (1 − λ_t)·alpha_A + λ_t·alpha_B; see `anneal`."""

    rounds: int = field(default=50, metadata={"always": True})
    schedule: str = "linear"

    @property
    def ceiling(self) -> float:
        return max(m.ceiling for m in self.members)

    def _shares(self, cohort: Cohort) -> tuple[float, float]:
        late = progress(self.schedule, cohort.round, self.rounds)
        return 1 - late, late

    def needs(self, state: State, cohort: Cohort) -> frozenset[Need]:
        active = zip(self._shares(cohort), self.members, state["members"], strict=True)
        return frozenset[Need]().union(*(m.needs(s, cohort) for share, m, s in active if share > 0))

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        shares = self._shares(cohort)
        members = list(state["members"])
        alpha = np.zeros(len(cohort))
        for i, (share, member) in enumerate(zip(shares, self.members, strict=True)):
            if share > 0:
                part, inner = member.weights(members[i], cohort)
                alpha = part if share == 1 else alpha + share * part
                members[i] = dict(inner)
        return alpha, {"members": members}

    def in_force(self, state: State, cohort: Cohort) -> Strategy:
        shares = self._shares(cohort)
        if 1.0 not in shares:
            return self
        only = shares.index(1.0)
        return self.members[only].in_force(state["members"][only], cohort)

    def possible(self, cohort: Cohort, f: int, width: float = math.inf) -> float:
        return max(m.possible(cohort, f, width) for m in self.members)

    def support(self, n: int, width: float = math.inf) -> int:
        return min(m.support(n, width) for m in self.members)


class AnnealTemperature(Combinator, name="anneal"):
    """1/T_t = (1 − λ_t)/T_0 + λ_t/T; see `anneal`."""

    T: float = field(default=math.inf, metadata={"always": True})
    rounds: int = field(default=50, metadata={"always": True})
    schedule: str = "linear"

    def rule(self, round: int) -> Soft:
        (start,) = self.members
        assert isinstance(start, Soft)
        late = progress(self.schedule, round, self.rounds)
        if late in (0, 1):  # the ends are exact: 1/(1/T) may differ from T
            return dataclasses.replace(start, T=self.T if late else start.T)
        inverse = (1 - late) / start.T + late / self.T
        return dataclasses.replace(start, T=1 / inverse if inverse > 0 else math.inf)

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        alpha, inner = self.rule(cohort.round).weights(state["members"][0], cohort)
        return alpha, {"members": [dict(inner)]}

    def among(self, state: State, cohort: Cohort, some: NDArray[np.bool_]) -> Array | None:
        return self.rule(cohort.round).among(state["members"][0], cohort, some)

    @property
    def separable(self) -> bool:
        return self.members[0].separable

    def possible(self, cohort: Cohort, f: int, width: float = math.inf) -> float:
        return self.rule(cohort.round).possible(cohort, f, width)

    def support(self, n: int, width: float = math.inf) -> int:
        return min(self.rule(0).support(n, width), self.rule(self.rounds).support(n, width))


@STRATEGIES.register(
    formula="(1 − λ_t)·A + λ_t·B, λ_t from 0 to 1 over `rounds`; or 1/T_t from 1/T_0 to 1/T",
    reference=f"{PAPER}; Kirkpatrick et al., 1983",
    examples=(
        "anneal(FedSoftWorse(T=0.2), FedAvg, rounds=50)",
        "anneal(FedSoftWorse(T=0.2), T=inf, rounds=50, schedule=cosine)",
    ),
)
def anneal(
    start: Strategy | str,
    end: Strategy | str | None = None,
    *,
    T: float | None = None,
    rounds: int = 50,
    schedule: str = "linear",
) -> Strategy:
    """A gradual hybrid: from one rule to another, or from one temperature to another.

    λ_t = t/rounds (``linear``) or (1 − cos(πt/rounds))/2 (``cosine``), and 1 afterwards.

    >>> print(anneal("FedSoftWorse(T=0.2)", "FedAvg", rounds=50))
    anneal(FedSoftWorse(T=0.2), FedAvg, rounds=50)
    """
    choice("anneal", "schedule", schedule, SCHEDULES)
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise ValueError(f"anneal: rounds = {rounds!r}; give a whole number of rounds, at least 1")
    if (end is None) == (T is None):
        raise ValueError("anneal: give either a second rule to pass to, or T= as the final temperature")
    if T is None:
        return AnnealMix(parsed("anneal", (start, end)), rounds=rounds, schedule=schedule)
    (rule,) = parsed("anneal", (start,), least=1)
    if not isinstance(rule, Soft):
        raise ValueError(f"anneal: only the soft rules have a temperature, {rule} has none; give a second rule")
    final = dataclasses.replace(rule, T=T).T  # the rule checks the temperature
    if final == 0 or rule.T == 0:
        raise ValueError("anneal: both temperatures must be above 0, as 1/T is interpolated; use a small one")
    return AnnealTemperature((rule,), T=final, rounds=rounds, schedule=schedule)
