"""The base of the paper's loss-aware rules: the kind of loss that they use, and the excess x_i = F_i − F_i*."""

from __future__ import annotations

import math
from dataclasses import field
from typing import ClassVar, Literal

import numpy as np

from fedalpha.strategies.arguments import choice
from fedalpha.strategies.base import State, Strategy, Traits
from fedalpha.strategies.cohort import LOSSES, Cohort, Need
from fedalpha.strategies.memory import recall, remember
from fedalpha.strategies.simplex import Array


class LossAware(Strategy):
    """The base of loss-aware rules: the kind of loss that they use, and the excess x = F − F*.

    ``loss``: before (F_i(w_t), known before training), train (running mean of the last local
    epoch) or after (F_i(w_i)). ``optima``: known (those of the cohort, 0 where none are given)
    or estimated (the lowest loss that the client has reported so far).
    """

    loss: Need = field(default="before", kw_only=True)
    optima: str = field(default="known", kw_only=True)

    sign: ClassVar[Literal[-1, 1]]

    def __post_init__(self) -> None:
        choice(self.text_name, "loss", self.loss, LOSSES)
        choice(self.text_name, "optima", self.optima, ("known", "estimated"))

    @property
    def requires(self) -> frozenset[Need]:
        return frozenset({self.loss})

    @property
    def traits(self) -> Traits:
        return Traits(shift_invariant=True, monotone=self.sign if self.optima == "known" else None)

    def excess(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        losses = cohort.require(self.loss)
        if self.optima == "estimated":
            optima = np.minimum(recall(state, cohort.ids, math.inf), losses)
            state = remember(state, cohort.ids, optima)
        elif cohort.optima is None:
            return losses, state
        else:
            optima = cohort.optima
        with np.errstate(over="ignore"):
            excess = losses - optima
        if not np.isfinite(excess).all():
            raise ValueError("loss − optimum overflows float64; rescale the losses and optima")
        return excess, state
