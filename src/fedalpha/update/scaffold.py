"""SCAFFOLD: control variates against client drift."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedalpha.data.federations import Examples
from fedalpha.models import Parameters
from fedalpha.rng import Draws
from fedalpha.select.base import Population
from fedalpha.strategies.arguments import choice
from fedalpha.update.base import UPDATES, Broadcast, Report, Site
from fedalpha.update.local import Local, without_momentum
from fedalpha.update.sgd import sgd

_PREFIX = "scaffold."


@UPDATES.register(
    formula="y ← y − lr·(∇F_i(y; batch) − c_i + c); c_i⁺ = c_i − c + (x − y)/(K·lr); c ← c + Σ(c_i⁺ − c_i)/N",
    reference="Karimireddy et al., 2020, 1910.06378 (option II)",
    examples=("scaffold(lr=0.1)", "scaffold(lr=0.05, batch=16, epochs=2, prior=size)"),
)
class scaffold(sgd):
    """SGD whose steps are corrected by c − c_i, the difference between all clients' gradients and the client's own.

    The server's control variate c is sent with the broadcast (twice the bytes each way); c_i is the client's
    state. ``prior``: uniform (the reference: all clients count the same, use it with
    ``FedAvg(prior=uniform)``) or size, where c is weighted by the clients' data as FedAvg does.
    """

    prior: str = "uniform"
    sends = (_PREFIX,)

    def __post_init__(self) -> None:
        super().__post_init__()
        without_momentum(self)
        choice("scaffold", "prior", self.prior, ("uniform", "size"))

    def update(
        self,
        site: Site,
        broadcast: Broadcast,
        data: Examples,
        state: Mapping[str, Any],
        draws: Draws,
        wanted: frozenset[str] = frozenset(),
    ) -> Report:
        local = Local(self, site, broadcast, data, draws)
        start = local.point()
        common = [_found(broadcast.extras, _PREFIX + name, p) for name, p in zip(local.names, start, strict=True)]
        own = [_found(state.get("control", {}), name, p) for name, p in zip(local.names, start, strict=True)]
        shift = [c - mine for c, mine in zip(common, own, strict=True)]
        with local.seeded():
            for batch in local.batches():
                loss, gradients = local.gradient(batch)
                scale = 1.0 if site.task.reduction == "mean" else len(batch)
                local.move([scale * g + s for g, s in zip(gradients, shift, strict=True)], -local.rate)
                local.saw(loss, len(batch))
        length = local.steps * local.rate
        if length > 0:
            moved = [(x - y.detach()) / length for x, y in zip(start, local.parameters, strict=True)]
            change = [m - c for m, c in zip(moved, common, strict=True)]
        else:  # the learning rate is 0: neither the model nor the control variates change
            change = [torch.zeros_like(c) for c in common]
        extras = {_PREFIX + name: c.cpu() for name, c in zip(local.names, change, strict=True)}
        control = {name: (mine + c).cpu() for name, mine, c in zip(local.names, own, change, strict=True)}
        return local.report(wanted, extras, {"control": control})

    def absorb(self, broadcast: Broadcast, reports: Sequence[Report], population: Population) -> Parameters:
        weights, total = [1.0] * len(reports), float(population.clients)
        if self.prior == "size":
            weights = population.sizes(np.array([r.id for r in reports], dtype=np.int64)).tolist()
            total = float(population.sizes(population.named(np.arange(population.clients))).sum())
        extras = dict(broadcast.extras)
        for name in sorted({name for report in reports for name in report.extras if name.startswith(_PREFIX)}):
            changes = [r.extras[name] for r in reports]
            summed = _found(extras, name, changes[0]).double()
            for weight, change in zip(weights, changes, strict=True):
                summed = summed + weight / total * change.double()
            extras[name] = summed.to(changes[0].dtype)
        return extras


def _found(held: Mapping[str, Tensor], name: str, like: Tensor) -> Tensor:
    """The tensor called ``name``; zeros if there is none yet, or if the model has another shape now."""
    value = held.get(name)
    return value.to(like.device) if value is not None and value.shape == like.shape else torch.zeros_like(like)
