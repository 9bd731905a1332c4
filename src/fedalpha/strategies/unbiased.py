"""`unbiased`: any rule under random cohorts, with p replaced by an unbiased estimate of p (docs/theory.md)."""

from __future__ import annotations

import dataclasses
import math
from functools import cached_property

from fedalpha.strategies.base import HERE, STRATEGIES, State, Strategy, Traits
from fedalpha.strategies.cohort import Cohort, Need
from fedalpha.strategies.combinator import Combinator, simplex_member
from fedalpha.strategies.simplex import Array


class Unbiased(Combinator, name="unbiased"):
    """The rule with p_i/π_i in place of sizes; see `unbiased`."""

    looks_at = frozenset[Need]({"design"})

    @cached_property
    def traits(self) -> Traits:
        return dataclasses.replace(super().traits, simplex=False)

    @property
    def against_absence(self) -> str:
        return "it divides by each client's chance to be in a cohort, which is not known there"

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        design = cohort.require("design")
        (alpha,), state = self.all_weights(state, cohort.replace(sizes=design))
        return alpha * math.fsum(design.tolist()), state


@STRATEGIES.register(
    formula="the rule's weights with a_i = p_i/π_i in place of the sizes, times Σ a; π_i is the selection probability",
    reference=f"Horvitz & Thompson, 1952; {HERE}",
    examples=("unbiased(FedAvg)", "unbiased(switch(FedSoftWorse(T=0.2), FedAvg, at=10))"),
)
def unbiased(rule: Strategy | str) -> Unbiased:
    """Horvitz–Thompson weights: p_i is the client's share of *all* data, π_i its probability of selection.

    `unbiased(FedAvg)` has alpha_i = p_i/π_i, whose mean over the cohorts is p, so that hybrids that end in FedAvg
    have no bias left. Use it with the selection ``by_size(C=…)``: the weights then sum to 1. With ``uniform(C=…)``
    they sum to 1 only in the mean, so in some rounds the model moves more, in others less. The probabilities of
    selections by loss are not known, so these selections are refused.

    >>> import fedalpha
    >>> fedalpha.weights("unbiased(FedAvg)", losses=[1, 1], sizes=[9, 1], design=[0.5, 0.5])
    array([0.5, 0.5])
    """
    return Unbiased(simplex_member("unbiased", rule))
