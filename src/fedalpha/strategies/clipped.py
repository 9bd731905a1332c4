"""`clipped`: losses are clipped to the spread of the cohort, which limits the effect of a lie about a loss."""

from __future__ import annotations

import math
from dataclasses import field
from functools import cached_property
from typing import Any

import numpy as np

from fedalpha.strategies.base import STRATEGIES, State, Strategy, Traits
from fedalpha.strategies.cohort import LOSSES, Cohort
from fedalpha.strategies.combinator import Combinator
from fedalpha.strategies.simplex import Array


def spread(losses: Array) -> tuple[float, float]:
    """Median and median absolute deviation.

    >>> spread(np.array([1.0, 2.0, 3.0, 4.0, 1e9]))
    (3.0, 1.0)
    """
    with np.errstate(over="ignore"):
        median = _median(losses)
        return median, _median(np.abs(losses - median))


def _median(x: Array) -> float:
    """The median, computed so that values near the largest float do not overflow."""
    ordered = np.sort(x)
    return float(0.5 * ordered[(len(x) - 1) // 2] + 0.5 * ordered[len(x) // 2])


class Clipped(Combinator, name="clipped"):
    """The rule on losses that were clipped to median ± k·MAD; see `clipped`."""

    k: float = field(default=3.0, metadata={"always": True})

    @property
    def ceiling(self) -> float:
        return self.members[0].ceiling

    @cached_property
    def traits(self) -> Traits:
        inner = self.members[0].traits
        # The limits depend on every loss, also on the client's own, so monotonicity is lost.
        return Traits(inner.simplex, inner.shift_invariant, 0 if inner.monotone == 0 else None)

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        changes: dict[str, Any] = {}
        for kind in LOSSES:
            losses = getattr(cohort, kind)
            if losses is not None:
                middle, deviation = spread(losses)
                with np.errstate(over="ignore"):
                    changes[kind] = np.clip(losses, middle - self.k * deviation, middle + self.k * deviation)
        (alpha,), state = self.all_weights(state, cohort.replace(**changes))
        return alpha, state

    def possible(self, cohort: Cohort, f: int, width: float = math.inf) -> float:
        claimed = [x for x in (cohort.before, cohort.train, cohort.after) if x is not None]
        widths = [2 * self.k * spread(losses)[1] for losses in claimed]
        return self.members[0].possible(cohort, f, min(max(widths, default=width), width))

    def support(self, n: int, width: float = math.inf) -> int:
        return self.members[0].support(n, width)


@STRATEGIES.register(
    formula="the rule on losses clipped to median ± k·MAD",
    reference="f < n/2 liars cannot move the limits out of the honest losses' reach",
    examples=(
        "clipped(FedSoftWorse(T=0.2), k=3)",
        "clipped(FedWorse(k=0.3), k=2)",
    ),
)
def clipped(rule: Strategy | str, k: float = 3.0) -> Clipped:
    """The losses of a cohort are clipped to median ± k·MAD before they are weighed.

    >>> import fedalpha
    >>> fedalpha.weights("clipped(FedSoftWorse(T=1), k=1)", losses=[1, 2, 3, 4, 1e9], sizes=[1] * 5).round(3)
    array([0.051, 0.051, 0.139, 0.379, 0.379])
    """
    if isinstance(k, bool) or not isinstance(k, int | float) or not 0 < k < math.inf:
        raise ValueError(f"clipped: k = {k!r}; give a finite number of median absolute deviations > 0")
    return Clipped((STRATEGIES.parse(rule),), k=float(k))
