"""Combinators: they take strategies and return a strategy.

- `switch`: one rule after another, at given rounds or when accuracy passes a value.
- `anneal`: a gradual passage, of the mixture or of the temperature.
- `mix`: a fixed mixture.
- `cap`: no client weighs more than c (water-filling).
- `floor`: every client keeps at least the share π of its prior weight.

Rounds are counted from 0: ``at=20`` means that rounds 0–19 use the first rule.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedalpha.strategies.base import (
    STRATEGIES,
    Array,
    Cohort,
    Need,
    State,
    Strategy,
    Traits,
    choice,
    fill,
    normalise,
)
from fedalpha.strategies.rules import PAPER, TINY, Soft


@dataclass(frozen=True, eq=False, repr=False)
class Combinator(Strategy):
    """Shared by all: members with a state each, and the traits that all members have."""

    members: tuple[Strategy, ...] = field(metadata={"positional": True})

    @property
    def traits(self) -> Traits:
        monotone = {m.traits.monotone for m in self.members} - {0}
        return Traits(
            simplex=all(m.traits.simplex for m in self.members),
            shift_invariant=all(m.traits.shift_invariant for m in self.members),
            monotone=0 if not monotone else monotone.pop() if len(monotone) == 1 else None,
        )

    @property
    def requires(self) -> frozenset[Need]:
        return frozenset[Need]().union(*(m.requires for m in self.members))

    def init(self, n: int | None = None) -> State:
        return {"members": [dict(m.init(n)) for m in self.members]}

    def needs(self, state: State, cohort: Cohort) -> frozenset[Need]:
        each = (m.needs(s, cohort) for m, s in zip(self.members, state["members"], strict=True))
        return frozenset[Need]().union(*each)

    def all_weights(self, state: State, cohort: Cohort) -> tuple[list[Array], State]:
        """Every member's alpha, and the state with all members advanced."""
        pairs = [m.weights(s, cohort) for m, s in zip(self.members, state["members"], strict=True)]
        return [alpha for alpha, _ in pairs], {**state, "members": [dict(s) for _, s in pairs]}


@dataclass(frozen=True, eq=False, repr=False)
class Switch(Combinator):
    """Member number ``stage`` weighs; see `switch`."""

    at: tuple[int, ...] = field(default=(), metadata={"scalar": True})
    accuracy: tuple[float, ...] = field(default=(), metadata={"scalar": True})

    text_name: ClassVar[str] = "switch"

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
    members = _members("switch", rules)
    if (at is None) == (accuracy is None):
        raise ValueError("switch: give either at= (rounds) or accuracy= (values), and only one of them")
    name = "at" if at is not None else "accuracy"
    given = at if at is not None else accuracy
    changes: list[Any] = list(given) if isinstance(given, Sequence) else [given]
    if not _numbers(changes):
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


SCHEDULES = ("linear", "cosine")


def progress(schedule: str, round: int, rounds: int) -> float:
    """λ_t: 0 in round 0, 1 from round ``rounds`` on."""
    share = min(1.0, round / rounds)
    return share if schedule == "linear" else (1 - math.cos(math.pi * share)) / 2 if share < 1 else 1.0


@dataclass(frozen=True, eq=False, repr=False)
class AnnealMix(Combinator):
    """alpha = (1 − λ_t)·alpha_A + λ_t·alpha_B; see `anneal`."""

    rounds: int = field(default=50, metadata={"always": True})
    schedule: str = "linear"

    text_name: ClassVar[str] = "anneal"

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


@dataclass(frozen=True, eq=False, repr=False)
class AnnealTemperature(Combinator):
    """1/T_t = (1 − λ_t)/T_0 + λ_t/T; see `anneal`."""

    T: float = field(default=math.inf, metadata={"always": True})
    rounds: int = field(default=50, metadata={"always": True})
    schedule: str = "linear"

    text_name: ClassVar[str] = "anneal"

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
        return AnnealMix(_members("anneal", (start, end)), rounds=rounds, schedule=schedule)
    (rule,) = _members("anneal", (start,), least=1)
    if not isinstance(rule, Soft):
        raise ValueError(f"anneal: only the soft rules have a temperature, {rule} has none; give a second rule")
    final = dataclasses.replace(rule, T=T).T  # the rule checks the temperature
    if final == 0 or rule.T == 0:
        raise ValueError("anneal: both temperatures must be above 0, as 1/T is interpolated; use a small one")
    return AnnealTemperature((rule,), T=final, rounds=rounds, schedule=schedule)


@dataclass(frozen=True, eq=False, repr=False)
class Mix(Combinator):
    """Σ_j shares_j · alpha_j; see `mix`."""

    shares: tuple[float, ...] = ()

    text_name: ClassVar[str] = "mix"

    @property
    def ceiling(self) -> float:
        return max(m.ceiling for m in self.members)

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        alphas, state = self.all_weights(state, cohort)
        total = np.zeros(len(cohort))
        whole = math.fsum(self.shares)  # 1, but for the digits that were not written
        for share, alpha in zip(self.shares, alphas, strict=True):
            total += share / whole * alpha
        return total, state


@STRATEGIES.register(
    formula="Σ_j share_j·alpha_j, shares on the simplex (equal by default)",
    examples=("mix(FedSoftWorse(T=0.2), FedAvg)", "mix(FedWorse, FedAvg, FedSoftBetter, shares=[0.2, 0.5, 0.3])"),
)
def mix(*rules: Strategy | str, shares: Sequence[float] | None = None) -> Mix:
    """A fixed mixture of rules.

    >>> import fedalpha
    >>> fedalpha.weights(mix("FedWorse", "FedAvg"), losses=[2, 1], sizes=[1, 1])
    array([0.75, 0.25])
    """
    members = _members("mix", rules)
    if shares is not None and not (isinstance(shares, Sequence) and _numbers(shares)):
        raise ValueError(f"mix: shares = {shares!r} must be a list of numbers, one per rule")
    given = tuple(shares) if shares is not None else (1 / len(members),) * len(members)
    if len(given) != len(members):
        raise ValueError(f"mix: {len(members)} rules but {len(given)} shares; give one share per rule")
    if any(not 0 <= s <= 1 for s in given) or abs(math.fsum(given) - 1) > 1e-9:
        raise ValueError(f"mix: shares = {list(given)} must be non-negative and sum to 1")
    return Mix(members, shares=tuple(float(s) for s in given))


@dataclass(frozen=True, eq=False, repr=False)
class Cap(Combinator):
    """alpha_i = min(c, λ·a_i); see `cap`."""

    c: float = field(default=1.0, metadata={"always": True})

    text_name: ClassVar[str] = "cap"

    @property
    def ceiling(self) -> float:
        return min(self.c, self.members[0].ceiling)

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        n = len(cohort)
        if self.c * n < 1 - 1e-12:
            raise ValueError(f"cap: c = {self.c} is below 1/n: {n} clients cannot carry all of the weight; raise c")
        (a,), following = self.all_weights(state, cohort)
        c = max(self.c, 1 / n)  # 0.333333333333 stands for 1/3
        alpha = np.zeros(n)
        while (left := 1 - math.fsum(alpha.tolist())) > 1e-15 * n and not alpha.all():
            alpha = alpha + fill(self._shares(state, cohort, a, alpha == 0), c, left)
        capped: Array = np.minimum(normalise(np.maximum(alpha, np.minimum(a, TINY))), c)
        return capped, following

    def _shares(self, state: State, cohort: Cohort, a: Array, some: NDArray[np.bool_]) -> Array:
        """In which proportion ``some`` clients share: as the rule has it, then by their prior, at last equally."""
        inner = self.members[0].among(state["members"][0], cohort, some)
        for shares in (a if inner is None else inner, cohort.prior("size")):
            if shares[some].any():
                return np.where(some, shares, 0.0)
        return some.astype(np.float64)


@STRATEGIES.register(
    formula="min(c, λ·alpha_i) with λ so that the sum is 1 (water-filling)",
    reference="bounds what any one client can do; see docs/reliability.md",
    examples=("cap(FedSoftWorse(T=0.2), 0.5)", "cap(FedWorse(k=2), c=0.7)"),
)
def cap(rule: Strategy | str, c: float) -> Cap:
    """No client weighs more than c.

    alpha_i = min(c, λ·a_i), also where a soft rule's a_i are too small for float64; mass that the support
    of a cannot carry goes to the other clients in proportion to their prior, also capped. c < 1/n cannot be met
    and is an error.

    >>> import fedalpha
    >>> fedalpha.weights("cap(FedWorse, 0.5)", losses=[3, 2, 1], sizes=[1, 3, 1])
    array([0.5  , 0.375, 0.125])
    """
    members = _members("cap", (rule,), least=1)
    if not members[0].traits.simplex:
        raise ValueError(f"cap: {members[0]} has weights off the simplex; only simplex rules can be capped")
    if not _numbers([c]) or not 0 < c <= 1:
        raise ValueError(f"cap: c = {c!r}; give the largest weight allowed, in (0, 1]")
    return Cap(members, c=float(c))


@dataclass(frozen=True, eq=False, repr=False)
class Floor(Combinator):
    """(1 − π)·alpha_i + π·p_i; see `floor`."""

    pi: float = field(default=0.0, metadata={"always": True})

    text_name: ClassVar[str] = "floor"

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        (alpha,), state = self.all_weights(state, cohort)
        return (1 - self.pi) * alpha + self.pi * cohort.prior("size"), state


@STRATEGIES.register(
    formula="(1 − π)·alpha_i + π·p_i",
    reference="keeps κ_i = alpha_i/p_i ≥ π, which bounds the error term of the paper's corollary",
    examples=("floor(FedWorse, 0.1)", "floor(FedSoftBetter(T=0.2), pi=0.3)"),
)
def floor(rule: Strategy | str, pi: float) -> Floor:
    """Every client keeps at least the share π of its prior weight.

    >>> import fedalpha
    >>> fedalpha.weights("floor(FedWorse, 0.2)", losses=[2, 1], sizes=[1, 1])
    array([0.9, 0.1])
    """
    members = _members("floor", (rule,), least=1)
    if not _numbers([pi]) or not 0 <= pi <= 1:
        raise ValueError(f"floor: pi = {pi!r}; give a share in [0, 1]")
    return Floor(members, pi=float(pi))


def _numbers(values: Sequence[object]) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def _members(owner: str, rules: Sequence[object], least: int = 2) -> tuple[Strategy, ...]:
    """Strategies, from strategies or their texts."""
    if len(rules) < least:
        raise ValueError(f"{owner}: {len(rules)} rule(s) given, at least {least} needed")
    members = []
    for rule in rules:
        if not isinstance(rule, Strategy | str):
            raise ValueError(f"{owner}: {rule!r} is not a strategy; write for example {owner}(FedSoftWorse(T=0.2), …)")
        members.append(STRATEGIES.parse(rule))
    return tuple(members)
