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

Each rule states its own bound: `Strategy.possible` is B(f), `Combine.breakdown` the attackers that it tolerates.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedalpha.strategies import STRATEGIES, Array, Cohort, Strategy

if TYPE_CHECKING:  # combine rules need torch, and a Flower server with a plain mean does not
    from fedalpha.combine import Combine


@dataclass(frozen=True)
class Influence:
    """What any ``clients`` clients can do in a round.

    ``mass``: the largest total alpha that this many clients had. ``possible``: the largest total alpha that they
    could have had with lies about their losses (`clipped`: within the spread of that round). ``bound``: 2·possible·C
    if updates are clipped to C, else None.
    """

    clients: int
    mass: float
    possible: float
    bound: float | None

    def row(self) -> dict[str, Any]:
        return {"clients": self.clients, "mass": self.mass, "possible": self.possible, "bound": self.bound}


@dataclass(frozen=True)
class Tolerance:
    """How many liars a configuration tolerates, the weight that f liars can get, and the limit of the combine rule."""

    liars: int
    mass: tuple[float, ...]
    """B(f) for f = 0, 1, …"""
    limit: float
    """The combine rule tolerates any B below this (the trimmed mean also B equal to this)."""
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
    from fedalpha.combine import COMBINES

    rule, how = STRATEGIES.parse(strategy), COMBINES.parse(combine)
    cohort = Cohort(np.arange(n), np.ones(n) if sizes is None else np.asarray(sizes, dtype=np.float64))
    mass = tuple(rule.possible(cohort, f, width) for f in range(n + 1))
    limit = how.breakdown(rule.support(n, width))
    edge = limit.mass + (1e-12 if limit.inclusive else -1e-12)
    held = itertools.takewhile(lambda f: f <= limit.attackers and mass[f] < edge, range(1, n + 1))
    return Tolerance(len(list(held)), mass, limit.mass, how.clipped_to)


def influence(strategy: Strategy, combine: Combine, cohort: Cohort, alpha: Array, f: int, lost: int = 0) -> Influence:
    """What any f clients of a cohort can do, if ``lost`` others did not deliver after they were weighed.

    Before that the f clients weigh at most B(f), and the other remaining clients at least 1 − B(f + lost). After
    renormalising, the f clients weigh at most B(f) / (B(f) + 1 − B(f + lost)), and never more than f·`ceiling`.
    """
    norm = combine.clipped_to
    largest = math.fsum(np.sort(np.abs(alpha))[::-1][:f].tolist())
    most = 0.0
    if f:
        most = strategy.possible(cohort, f)
        if lost:
            others = 1 - strategy.possible(cohort, min(f + lost, len(cohort)))
            most = min(most / (most + others), f * strategy.ceiling)
        most = max(most, min(largest, 1.0))
    return Influence(f, largest, most, None if norm is None else 2 * most * norm)
