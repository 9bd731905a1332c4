"""`switch`: one rule after another, at given rounds or when accuracy passes a value.

Rounds are counted from 0: ``at=20`` means that rounds 0–19 use the first rule.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedalpha.strategies.arguments import are_numbers
from fedalpha.strategies.base import PAPER, STRATEGIES, State, Strategy
from fedalpha.strategies.cohort import Cohort, Need
from fedalpha.strategies.combinator import Combinator, parsed
from fedalpha.strategies.simplex import Array


class Switch(Combinator, name="switch"):
    """Member number ``stage`` weighs; see `switch`."""

    at: tuple[int, ...] = field(default=(), metadata={"scalar": True})
    accuracy: tuple[float, ...] = field(default=(), metadata={"scalar": True})

    @property
    def ceiling(self) -> float:
        return max(m.ceiling for m in self.members)

    @property
    def requires(self) -> frozenset[Need]:
        return super().requires | ({"accuracy"} if self.accuracy else frozenset())

    def init(self, n: int | None = None) -> State:
        return {**super().init(n), "stage": 0}

    def stage(self, state: State, cohort: Cohort) -> int:
        if self.at:
            return bisect.bisect_right(self.at, cohort.round)
        stage: int = state["stage"]
        while cohort.accuracy is not None and stage < len(self.accuracy) and cohort.accuracy >= self.accuracy[stage]:
            stage += 1
        return stage

    def needs(self, state: State, cohort: Cohort) -> frozenset[Need]:
        stage = self.stage(state, cohort)
        waiting: frozenset[Need] = frozenset({"accuracy"}) if stage < len(self.accuracy) else frozenset()
        return self.members[stage].needs(state["members"][stage], cohort) | waiting

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        stage = self.stage(state, cohort)
        alpha, inner = self.members[stage].weights(state["members"][stage], cohort)
        members = [dict(inner) if i == stage else s for i, s in enumerate(state["members"])]
        return alpha, {"members": members, "stage": stage}

    def in_force(self, state: State, cohort: Cohort) -> Strategy:
        stage = self.stage(state, cohort)
        return self.members[stage].in_force(state["members"][stage], cohort)

    def among(self, state: State, cohort: Cohort, some: NDArray[np.bool_]) -> Array | None:
        stage = self.stage(state, cohort)
        return self.members[stage].among(state["members"][stage], cohort, some)

    def possible(self, cohort: Cohort, f: int, width: float = math.inf) -> float:
        return max(m.possible(cohort, f, width) for m in self.members)

    def support(self, n: int, width: float = math.inf) -> int:
        return min(m.support(n, width) for m in self.members)


@STRATEGIES.register(
    formula="rule A, then B (then C …) from the given rounds, or once accuracy ≥ the given values",
    reference=PAPER,
    examples=(
        "switch(FedSoftBetter(T=0.2), FedAvg, at=20)",
        "switch(FedSoftBetter, FedAvg, FedSoftWorse, at=[15, 30])",
        "switch(FedSoftBetter, FedAvg, accuracy=0.6)",
    ),
)
def switch(
    *rules: Strategy | str,
    at: int | Sequence[int] | None = None,
    accuracy: float | Sequence[float] | None = None,
) -> Switch:
    """A discrete hybrid: each rule in turn, changing at rounds or when accuracy passes a value.

    ``at`` and ``accuracy`` hold one value per change. An accuracy change happens once (≥) and is
    remembered in the state.

    >>> print(switch("FedSoftBetter(T=0.2)", "FedAvg", at=20))
    switch(FedSoftBetter(T=0.2), FedAvg, at=20)
    """
    members = parsed("switch", rules)
    if (at is None) == (accuracy is None):
        raise ValueError("switch: give either at= (rounds) or accuracy= (values), and only one of them")
    name = "at" if at is not None else "accuracy"
    given = at if at is not None else accuracy
    changes: list[Any] = list(given) if isinstance(given, Sequence) else [given]
    if not are_numbers(changes):
        raise ValueError(f"switch: {name} = {given!r} must be a number or a list of numbers")
    if len(changes) != len(members) - 1:
        raise ValueError(
            f"switch: {len(members)} rules need {len(members) - 1} change(s), but {name} has {len(changes)}; "
            f"give one value per change"
        )
    if changes != sorted(changes):
        raise ValueError(f"switch: {name} = {changes} must not decrease")
    if name == "at":
        if any(not 0 <= c < math.inf or c != int(c) for c in changes):
            raise ValueError(f"switch: at = {changes}; rounds are whole numbers counted from 0")
        return Switch(members, at=tuple(int(c) for c in changes))
    if any(not 0 <= c <= 1 for c in changes):
        raise ValueError(f"switch: accuracy = {changes}; give fractions between 0 and 1 (0.6, not 60)")
    return Switch(members, accuracy=tuple(float(c) for c in changes))
