"""`stale`: any rule, with weights that decrease with the staleness of an update, for buffered servers."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import field
from functools import cached_property

from fedalpha.strategies.arguments import number
from fedalpha.strategies.base import STRATEGIES, State, Strategy, Traits
from fedalpha.strategies.cohort import Cohort, Need
from fedalpha.strategies.combinator import Combinator, parsed
from fedalpha.strategies.discounts import DISCOUNTS, Discount
from fedalpha.strategies.simplex import Array, normalise


class Stale(Combinator, name="stale"):
    """alpha_i ∝ alpha_i·s(τ_i); see `stale`."""

    looks_at = frozenset[Need]({"staleness"})
    keeps_order = False

    by: Discount = field(metadata={"positional": True})
    normalised: bool = True
    mix: float = 1.0

    @cached_property
    def traits(self) -> Traits:
        inner = self.members[0].traits
        if not self.normalised:
            return dataclasses.replace(inner, simplex=False)
        return super().traits

    @property
    def ceiling(self) -> float:
        return 1.0

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        (alpha,), state = self.all_weights(state, cohort)
        factors = self.by.factors(cohort.require("staleness"))
        if not self.normalised:
            return self.mix * factors * alpha, state
        if (factors == 1).all() or not (scaled := factors * alpha).any():
            return alpha, state
        return normalise(scaled), state

    @property
    def separable(self) -> bool:
        return self.members[0].separable

    def possible(self, cohort: Cohort, f: int, width: float = math.inf) -> float:
        inner = self.members[0].possible(cohort, f, width)
        if not self.normalised or cohort.staleness is None or not 0 < inner < 1:
            return inner
        factors = self.by.factors(cohort.staleness)
        most, least = float(factors.max()), float(factors.min())
        return inner * most / (inner * most + (1 - inner) * least)

    def support(self, n: int, width: float = math.inf) -> int:
        return self.members[0].support(n, width)


@STRATEGIES.register(
    formula="alpha_i ∝ alpha_i·s(τ_i); normalised=false: mix·s(τ_i)·alpha_i, the rest stays with w_t",
    reference="Xie et al., 2019, 1903.03934; Nguyen et al., 2022, 2106.06639",
    examples=(
        "stale(FedSoftWorse(T=0.2), polynomial(a=0.5))",
        "stale(FedAvg, hinge(a=10, b=4), normalised=false, mix=0.6)",
    ),
)
def stale(
    rule: Strategy | str, by: Discount | str = "polynomial", *, normalised: bool = True, mix: float = 1.0
) -> Stale:
    """A rule whose weights are multiplied by a discount of each update's staleness τ.

    ``by`` is polynomial(a), hinge(a, b) or constant. By default the weights then sum to 1 again, so that only the
    shares change. With ``normalised=false`` a cohort of stale updates moves the model less, as in FedAsync and FedBuff;
    ``mix`` then multiplies all weights. On a synchronous server τ = 0, and s(0) = 1.

    >>> import fedalpha
    >>> fedalpha.weights("stale(FedAvg, polynomial(a=1))", losses=[1, 1], sizes=[1, 1], staleness=[0, 1]).round(3)
    array([0.667, 0.333])
    """
    members, by = parsed("stale", (rule,), least=1), DISCOUNTS.parse(by)
    if not isinstance(normalised, bool):
        raise ValueError(f"stale: normalised = {normalised!r}; give true or false")
    if normalised and not members[0].traits.simplex:
        raise ValueError(f"stale: {members[0]} gives coefficients that do not sum to 1; add normalised=false")
    if normalised and mix != 1:
        raise ValueError(f"stale: mix = {mix!r} needs normalised=false: weights that sum to 1 have no other scale")
    return Stale(members, by, normalised=normalised, mix=number("stale", "mix", mix))


@STRATEGIES.register(
    formula="stale(FedAvg, by, normalised=false, mix): w ← (1 − mix·s(τ))·w + mix·s(τ)·w_i",
    reference="Xie et al., 2019, 1903.03934",
    examples=("FedAsync", "FedAsync(mix=0.9, by=hinge(a=10, b=4))"),
)
def FedAsync(mix: float = 0.6, by: Discount | str = "polynomial(a=0.5)") -> Stale:
    """FedAsync's weights, for ``server="fedasync(concurrency=…)"``: every update is mixed in as it arrives."""
    return stale("FedAvg", by, normalised=False, mix=number("FedAsync", "mix", mix, most=1))


@STRATEGIES.register(
    formula="stale(FedAvg(prior=uniform), by, normalised=false, mix=lr): w ← w + (lr/K)·Σ s(τ_i)·(w_i − w_{t−τ_i})",
    reference="Nguyen et al., 2022, 2106.06639",
    examples=("FedBuff", "FedBuff(lr=0.5)"),
)
def FedBuff(lr: float = 1.0, by: Discount | str = "polynomial(a=0.5)") -> Stale:
    """FedBuff's weights, for ``server="fedbuff(K=…, concurrency=…)"``: the mean of K discounted updates."""
    return stale("FedAvg(prior=uniform)", by, normalised=False, mix=number("FedBuff", "lr", lr))
