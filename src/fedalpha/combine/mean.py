"""The weighted mean."""

from __future__ import annotations

import dataclasses
import math

from fedalpha.combine.base import COMBINES, Combine, Reports
from fedalpha.combine.sums import add_product
from fedalpha.strategies import Array, State
from fedalpha.update import Broadcast


@COMBINES.register(formula="Σ alpha_i·w_i", reference="McMahan et al., 2017")
class mean(Combine):
    """Σ alpha_i·w_i in float64; every tensor keeps its dtype, integer buffers are not averaged."""

    linear = True

    def combine(
        self, state: State, broadcast: Broadcast, reports: Reports, alpha: Array, simplex: bool
    ) -> tuple[Broadcast, State]:
        if not alpha.any():  # no client has weight, for example because all are idle
            return broadcast, state
        total = reports.weighted_sum(alpha)
        rest = 0.0 if simplex else 1 - math.fsum(alpha.tolist())
        parameters = {}
        for name, old in broadcast.parameters.items():
            value = total[name]
            if rest and old.is_floating_point():
                value = value.clone()  # the engine's sum does not change
                add_product(value, rest, old)
            parameters[name] = value.to(old.dtype).contiguous()
        return dataclasses.replace(broadcast, parameters=parameters), state
