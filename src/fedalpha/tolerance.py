"""How much any f clients can do: the weight B that they can get, and the bound 2·B·C.

Lies about losses move weight, lies about updates move the model. What bounds the damage is the
attackers' total weight B: with updates clipped to the norm C the aggregate is at most 2·B·C away from
that of the others, and the robust rules break down only at B ≥ ½ (the trimmed mean at B > beta).

| strategy | B(f) of n clients |
|---|---|
| FedAvg | the f largest priors |
| FedWorse(k), FedBetter(k) | min(f, k)/k |
| FedSoft*(T), losses within a width R | f·e^{R/T} / (f·e^{R/T} + n − f) for a uniform prior |
| cap(·, c) | min(·, f·c) |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np

from fedalpha.combine import COMBINES, Combine, mean
from fedalpha.combine.geometric import centred, geomed
from fedalpha.combine.krum import krum
from fedalpha.combine.median import median, trimmed
from fedalpha.combine.robust import Wrapper
from fedalpha.combine.steps import clip, nnm
from fedalpha.strategies import STRATEGIES, Array, Cohort, FedAvg, Strategy
from fedalpha.strategies.clipped import Clipped, spread
from fedalpha.strategies.combinators import AnnealMix, AnnealTemperature, Cap, Combinator, Floor, Mix, Switch
from fedalpha.strategies.rules import Soft, TopK


@dataclass(frozen=True)
class Influence:
    """What any ``clients`` clients can do in a round.

    ``mass``: the largest alpha of so many clients as it was; ``possible``: as it could have been, had they
    lied about their losses (`clipped`: within the spread of that round); ``bound``: 2·possible·C where
    updates are clipped to C, None where nothing bounds it.
    """

    clients: int
    mass: float
    possible: float
    bound: float | None

    def row(self) -> dict[str, Any]:
        return {"clients": self.clients, "mass": self.mass, "possible": self.possible, "bound": self.bound}


@dataclass(frozen=True)
class Tolerance:
    """How many liars a configuration tolerates, what each number of them can weigh, and the rule's own limit."""

    liars: int
    mass: tuple[float, ...]
    """B(f) for f = 0, 1, …"""
    limit: float
    """The rule holds while B is below this (the trimmed mean: while it is not above)."""
    C: float | None

    def bound(self, f: int) -> float:
        """2·B(f)·C: how far f attackers move the clipped mean; infinite without clipping.

        >>> tolerance("cap(FedSoftWorse(T=0.2), 0.1)", 20, combine="clip(mean, C=2)").bound(2)
        0.8
        """
        return math.inf if self.C is None and f > 0 else 2 * self.mass[f] * (self.C or 0.0)


def tolerance(
    strategy: str | Strategy,
    n: int,
    *,
    combine: str | Combine = "mean",
    width: float = math.inf,
    sizes: Sequence[float] | None = None,
) -> Tolerance:
    """How many liars among ``n`` clients a strategy with a combine rule tolerates.

    ``width``: R, the largest difference between two losses after clipping (``clipped``: 2·k·MAD).

    >>> tolerance("FedWorse", 20, combine="median").liars
    0
    >>> tolerance("FedWorse(k=7)", 20, combine="median").liars  # k ≥ 2f + 1
    3
    >>> tolerance("FedSoftWorse(T=1.0)", 20, combine="geomed", width=1.0).liars  # T > R / ln((n − f)/f)
    5
    >>> tolerance("cap(FedSoftWorse(T=0.2), 0.08)", 20, combine="median").liars  # c < 1/(2f)
    6
    >>> tolerance("FedAvg", 20).liars  # one unclipped update moves a mean anywhere
    0
    """
    rule, how = STRATEGIES.parse(strategy), COMBINES.parse(combine)
    cohort = Cohort(np.arange(n), np.ones(n) if sizes is None else np.asarray(sizes, dtype=np.float64))
    mass = tuple(possible(rule, cohort, f, width) for f in range(n + 1))
    limit, inclusive, most = _limit(how, n, rule)
    held = [f for f in range(1, n + 1) if (mass[f] <= limit + 1e-12 if inclusive else mass[f] < limit - 1e-12)]
    liars = max((f for f in held if f <= most and set(range(1, f + 1)) <= set(held)), default=0)
    return Tolerance(liars, mass, limit, _norm(how))


def influence(strategy: Strategy, combine: Combine, cohort: Cohort, alpha: Array, f: int, lost: int = 0) -> Influence:
    """What any f clients of a cohort can do, if ``lost`` others did not deliver after they were weighed.

    The f hold at most B(f) before that and the others who are left at least 1 − B(f + lost), so that
    renormalised the f hold at most B(f) / (B(f) + 1 − B(f + lost)), and never more than f·`ceiling`.
    """
    norm = _norm(combine)
    largest = math.fsum(np.sort(np.abs(alpha))[::-1][:f].tolist())
    most = 0.0
    if f:
        most = possible(strategy, cohort, f, math.inf)
        if lost:
            others = 1 - possible(strategy, cohort, min(f + lost, len(cohort)), math.inf)
            most = min(most / (most + others), f * strategy.ceiling)
        most = max(most, min(largest, 1.0))
    return Influence(f, largest, most, None if norm is None else 2 * most * norm)


@singledispatch
def possible(strategy: Strategy, cohort: Cohort, f: int, width: float) -> float:
    """The largest alpha that any f clients can have together, whatever losses (within ``width``) they claim.

    A rule that is not known here may give them everything.
    """
    return min(1.0, float(f))


@possible.register
def _(strategy: FedAvg, cohort: Cohort, f: int, width: float) -> float:
    return _top(cohort.prior(strategy.prior), f)


@possible.register
def _(strategy: TopK, cohort: Cohort, f: int, width: float) -> float:
    k = strategy.count(len(cohort))
    return min(f, k) / k


@possible.register
def _(strategy: Soft, cohort: Cohort, f: int, width: float) -> float:
    theirs = _top(cohort.prior(strategy.prior), f)
    if theirs in (0.0, 1.0) or width == 0 or math.isinf(strategy.T):
        return theirs
    if strategy.T == 0 or math.isinf(width) or strategy.optima == "estimated":
        return 1.0  # with estimated optima two lies make an excess of any size
    return 1 / (1 + (1 - theirs) / theirs * math.exp(-min(width / strategy.T, 700.0)))


@possible.register
def _(strategy: Clipped, cohort: Cohort, f: int, width: float) -> float:
    widths = [2 * strategy.k * spread(losses)[1] for losses in _claimed(cohort)]
    return possible(strategy.members[0], cohort, f, min(max(widths, default=width), width))


@possible.register
def _(strategy: Cap, cohort: Cohort, f: int, width: float) -> float:
    return min(1.0, f * strategy.c)  # mass that is cut off the others may come to the liars: only the cap is sure


@possible.register
def _(strategy: Floor, cohort: Cohort, f: int, width: float) -> float:
    inner = possible(strategy.members[0], cohort, f, width)
    return (1 - strategy.pi) * inner + strategy.pi * _top(cohort.prior("size"), f)


@possible.register(Switch)
@possible.register(AnnealMix)
@possible.register(Mix)
def _(strategy: Combinator, cohort: Cohort, f: int, width: float) -> float:
    return max(possible(member, cohort, f, width) for member in strategy.members)


@possible.register
def _(strategy: AnnealTemperature, cohort: Cohort, f: int, width: float) -> float:
    return possible(strategy.rule(cohort.round), cohort, f, width)


def _top(p: Array, f: int) -> float:
    return min(1.0, math.fsum(np.sort(p)[::-1][:f].tolist()))


def _claimed(cohort: Cohort) -> list[Array]:
    return [x for x in (cohort.before, cohort.train, cohort.after) if x is not None]


def _limit(rule: Combine, n: int, strategy: Strategy) -> tuple[float, bool, int]:
    """(the weight at which the rule breaks down, whether that weight is still fine, the most attackers it allows)."""
    match rule:
        case trimmed(beta=beta):
            return beta, True, n
        case median() | geomed() | centred():
            return 0.5, False, n
        case krum(f=f):
            support = strategy.count(n) if isinstance(strategy, TopK) else n
            return 1.0, True, min(f, max(0, (support - 3) // 2))
        case clip():
            limit, inclusive, most = _limit(rule.inner, n, strategy)
            return (0.5, False, most) if isinstance(rule.inner, mean) else (limit, inclusive, most)
        case nnm(f=f):
            limit, inclusive, most = _limit(rule.inner, n, strategy)
            return limit, inclusive, min(f, most)
        case Wrapper():
            return _limit(rule.inner, n, strategy)
    return 0.0, False, n


def _norm(rule: Combine) -> float | None:
    """The norm to which updates are clipped on their way into a mean, if they are."""
    if isinstance(rule, clip):
        return rule.C if isinstance(rule.inner, mean) else None
    return _norm(rule.inner) if isinstance(rule, Wrapper) else None
