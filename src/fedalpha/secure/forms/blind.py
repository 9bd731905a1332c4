"""Weights that clients compute themselves, so that the server learns neither updates nor losses."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import field
from typing import Any

from fedalpha.secure.forms.base import SECURES, Secure
from fedalpha.select.base import Select
from fedalpha.strategies import Array, Cohort, State, Strategy
from fedalpha.strategies.plug_point import AnyAlgorithm
from fedalpha.strategies.soft import Soft


class Prior(Strategy):
    """The public part of a soft rule: p, the only part of the weights that the server knows."""

    prior: str = "size"

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        return cohort.prior(self.prior), state


@SECURES.register(
    formula="Σ a_i·x_i / Σ a_i with a_i = p_i·exp(±(F_i − reference)/T), both sums under masks",
    reference="the one-phase form of soft rules; docs/privacy.md",
    examples=("blind(reference=2.0)",),
)
class blind(Secure):
    """One phase: each client measures its loss and computes its weight a_i; the server learns Σ a_i and Σ a_i·x_i.

    ``reference``: a public loss, which cancels in the mean. a_i/p_i is at most exp(``steepest``): a client whose loss
    is further than T·steepest from the reference, on the side of larger weights, reports this and drops out. For
    FedSoftWorse and FedSoftBetter with losses before training. In the history alpha is the public part p; nobody knows
    the actual weights.
    """

    bits: int = 64
    reference: float = field(default=1.0, metadata={"always": True}, kw_only=True)
    steepest: float = field(default=12.0, kw_only=True)

    blind = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not math.isfinite(self.reference) or not 0 < self.steepest <= 40:
            raise ValueError(f"{self}: give a finite reference and a steepest in (0, 40]")

    def _check_weights(self, algorithm: AnyAlgorithm) -> None:
        rule = algorithm.weigh
        soft = isinstance(rule, Soft) and rule.loss == "before" and rule.optima == "known" and rule.T > 0
        if not soft:
            raise ValueError(
                f"{rule} compares the losses of clients, so the server must see them; blind works for FedSoftWorse and "
                "FedSoftBetter with T > 0, loss=before and known optima; masked hides the updates for all rules that "
                "weigh before training"
            )
        if type(algorithm.select).ask is not Select.ask:
            raise ValueError(
                f"select = {algorithm.select} asks clients for their losses, which blind hides; use uniform"
            )
        if algorithm.reevaluate:
            raise ValueError("reevaluate weighs clients by losses, which blind hides; leave it out")
        if not algorithm.combine.linear or algorithm.combine.alone:
            raise ValueError(
                f"combine = {algorithm.combine} needs a bound on the weights, which blind hides; use masked"
            )

    def played(self, algorithm: Any) -> Any:
        return dataclasses.replace(algorithm, weigh=Prior(algorithm.weigh.prior), secure=None)

    def terms(self, weigh: Any) -> dict[str, Any]:
        slope = 0.0 if math.isinf(weigh.T) else weigh.sign / weigh.T
        return {"blind": True, "slope": slope, "reference": float(self.reference), "steepest": float(self.steepest)}
