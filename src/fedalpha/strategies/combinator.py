"""The base of combinators, which take strategies, or their texts, and return a strategy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import cached_property
from typing import ClassVar

from fedalpha.strategies.base import STRATEGIES, State, Strategy, Traits
from fedalpha.strategies.cohort import Cohort, Need
from fedalpha.strategies.plug_point import AnyAlgorithm
from fedalpha.strategies.simplex import Array


class Combinator(Strategy):
    """The base of combinators: the members, each with its own state, and the traits that all members have."""

    looks_at: ClassVar[frozenset[Need]] = frozenset()
    """The values that the combinator itself needs, in addition to those of its members."""
    keeps_order: ClassVar[bool] = True
    """Whether the order of a member's weights is kept. If not, only weights that no loss changes are monotone."""

    members: tuple[Strategy, ...] = field(metadata={"positional": True})

    @cached_property
    def traits(self) -> Traits:
        """Cached, because every level of nested combinators would compute the traits below it again."""
        each = [m.traits for m in self.members]
        monotone = {t.monotone for t in each} - {0}
        return Traits(
            simplex=all(t.simplex for t in each),
            shift_invariant=all(t.shift_invariant for t in each),
            monotone=0 if not monotone else monotone.pop() if len(monotone) == 1 and self.keeps_order else None,
        )

    @property
    def requires(self) -> frozenset[Need]:
        return self.looks_at.union(*(m.requires for m in self.members))

    @property
    def against_stale(self) -> str:
        return next((why for m in self.members if (why := m.against_stale)), "")

    @property
    def against_absence(self) -> str:
        return next((why for m in self.members if (why := m.against_absence)), "")

    def check(self, algorithm: AnyAlgorithm) -> None:
        for member in self.members:
            member.check(algorithm)

    def init(self, n: int | None = None) -> State:
        return {"members": [dict(m.init(n)) for m in self.members]}

    def needs(self, state: State, cohort: Cohort) -> frozenset[Need]:
        each = (m.needs(s, cohort) for m, s in zip(self.members, state["members"], strict=True))
        return self.looks_at.union(*each)

    def all_weights(self, state: State, cohort: Cohort) -> tuple[list[Array], State]:
        """Every member's alpha, and the next state of all members."""
        pairs = [m.weights(s, cohort) for m, s in zip(self.members, state["members"], strict=True)]
        return [alpha for alpha, _ in pairs], {**state, "members": [dict(s) for _, s in pairs]}


def parsed(owner: str, rules: Sequence[object], least: int = 2) -> tuple[Strategy, ...]:
    """The rules as strategies; each may be given as a strategy or as its text."""
    if len(rules) < least:
        raise ValueError(f"{owner}: {len(rules)} rule(s) given, at least {least} needed")
    members = []
    for rule in rules:
        if not isinstance(rule, Strategy | str):
            raise ValueError(f"{owner}: {rule!r} is not a strategy; write for example {owner}(FedSoftWorse(T=0.2), …)")
        members.append(STRATEGIES.parse(rule))
    return tuple(members)


def simplex_member(owner: str, rule: Strategy | str) -> tuple[Strategy, ...]:
    """The one member of a combinator that needs weights on the simplex."""
    members = parsed(owner, (rule,), least=1)
    if not members[0].traits.simplex:
        raise ValueError(f"{owner}: {members[0]} has weights off the simplex; give a simplex rule")
    return members
