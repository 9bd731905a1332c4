"""`adaptive`: one rule after another, with changes that depend on the losses of the run.

The strategy uses its rules in turn (by default the Better, the Avg and the Worse family) and changes to the next rule
when the current one no longer helps. The decision uses the clients' losses F_i(w_t) and the skew ρ of the current
weights, which are both known before training. Neither test data nor validation data are needed.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from fedalpha.strategies.arguments import positive
from fedalpha.strategies.base import STRATEGIES, State, Strategy, Traits
from fedalpha.strategies.cohort import Cohort, Need
from fedalpha.strategies.combinator import Combinator
from fedalpha.strategies.fedavg import FedAvg
from fedalpha.strategies.simplex import Array
from fedalpha.strategies.soft import FedSoftBetter, FedSoftWorse


class Adaptive(Combinator, name="adaptive"):
    """Member number ``stage`` weighs; see `adaptive`."""

    window: int = 5
    drop: float = 0.1
    skew: float = 0.5

    @cached_property
    def traits(self) -> Traits:
        inner = super().traits
        return Traits(simplex=inner.simplex, monotone=inner.monotone)

    @property
    def requires(self) -> frozenset[Need]:
        return super().requires | {"before"}

    def init(self, n: int | None = None) -> State:
        return {**super().init(n), "stage": 0, "seen": []}

    def needs(self, state: State, cohort: Cohort) -> frozenset[Need]:
        stage = state["stage"]
        return self.members[stage].needs(state["members"][stage], cohort) | {"before"}

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        stage = state["stage"]
        losses = cohort.require("before")
        optima = np.zeros(len(cohort)) if cohort.optima is None else cohort.optima
        p = cohort.prior("size")
        mean = math.fsum((p * losses).tolist()) - math.fsum((p * optima).tolist())
        alpha, inner = self.members[stage].weights(state["members"][stage], cohort)
        held = math.fsum((alpha * losses).tolist()) - math.fsum((alpha * optima).tolist())
        members = [dict(inner) if i == stage else s for i, s in enumerate(state["members"])]
        seen = [*state["seen"], mean][-(self.window + 1) :]
        if stage + 1 < len(self.members) and (self._stalled(seen) or held < self.skew * mean):
            stage, seen = stage + 1, []
        return alpha, {"members": members, "stage": stage, "seen": seen}

    def _stalled(self, seen: list[float]) -> bool:
        """Whether the mean loss has fallen by less than the share ``drop`` over the last ``window`` rounds."""
        return len(seen) > self.window and not seen[-1] <= (1 - self.drop) * seen[0]


@STRATEGIES.register(
    formula="rule after rule; on when Σp·x fell by less than `drop` over `window` rounds, or ρ < `skew`",
    reference="this library",
    examples=("adaptive", "adaptive(FedSoftBetter(T=1), FedAvg, window=2, drop=0.2, skew=0.8)"),
)
def adaptive(*rules: Strategy | str, window: int = 5, drop: float = 0.1, skew: float = 0.5) -> Adaptive:
    """A hybrid that chooses the rounds of its changes; by default FedSoftBetter, FedAvg, FedSoftWorse at T = 0.2.

    With x̄_t = Σ p_i·(F_i(w_t) − F_i*) and ρ_t = Σ alpha_i·x_i / x̄_t, the current rule is replaced by the next
    one after a round in which x̄_t > (1 − drop)·x̄_{t−window} (the losses have levelled off), or ρ_t < skew (the rule
    ignores most of the loss, and the paper's error term grows with this bias). A change takes effect in the
    next round and is never undone.

    >>> adaptive()
    adaptive(FedSoftBetter(T=0.2), FedAvg, FedSoftWorse(T=0.2))
    """
    members = tuple(STRATEGIES.parse(r) for r in rules) or (FedSoftBetter(T=0.2), FedAvg(), FedSoftWorse(T=0.2))
    if len(members) < 2:
        raise ValueError("adaptive: one rule given; give two or more to change between, or none for the default")
    if isinstance(window, bool) or not isinstance(window, int) or window < 1:
        raise ValueError(f"adaptive: window = {window!r}; give a number of rounds, at least 1")
    if positive("adaptive", "drop", drop, zero=True) > 1:
        raise ValueError(f"adaptive: drop = {drop}; give a share of the loss, in [0, 1]")
    return Adaptive(members, window=window, drop=float(drop), skew=positive("adaptive", "skew", skew, zero=True))
