"""Stochastic L-BFGS with displacement aggregation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedalpha.data.federations import Examples
from fedalpha.rng import Draws
from fedalpha.update.base import UPDATES, Broadcast, Report, Site
from fedalpha.update.curvature import Pairs
from fedalpha.update.local import Local, without_momentum
from fedalpha.update.sgd import sgd

_HALVINGS = 10


@UPDATES.register(
    formula="w ← w − t·H·∇F_i(w; batch), H by BFGS from lr·I, t by halving on the batch",
    reference="Berahas, Curtis, Zhou, 2019, 1903.03471",
    examples=("lbfgs(lr=0.1)", "lbfgs(lr=0.1, batch=64, steps=10, memory=5, aggregate=false)"),
)
class lbfgs(sgd):
    """Quasi-Newton steps on mini-batches; every round starts without curvature pairs.

    Both gradients of a pair come from the same batch. ``lr`` scales the initial inverse Hessian, so the first
    step is one of SGD. ``memory`` pairs are kept; with ``aggregate`` a pair whose step depends linearly on
    later ones is folded into them (see `fedalpha.update.curvature`), so that nothing is lost; otherwise
    the oldest pair is dropped. Steps are halved until the batch loss falls enough (Armijo, 10⁻⁴). A step
    costs two gradients. Use it for small models with large local batches.
    """

    memory: int = 10
    aggregate: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        without_momentum(self)
        if isinstance(self.memory, bool) or not isinstance(self.memory, int) or self.memory < 1:
            raise ValueError(f"lbfgs: memory = {self.memory!r}; give a number of pairs, at least 1")
        if not isinstance(self.aggregate, bool):
            raise ValueError(f"lbfgs: aggregate = {self.aggregate!r}; write true or false")

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
        pairs = Pairs(self.memory, local.rate, self.aggregate)
        with local.seeded():
            for batch in local.batches():
                loss, gradients = local.gradient(batch)
                local.saw(loss, len(batch))
                g = _flat(gradients)
                step = self._search(local, batch, g, -pairs.solve(g))
                if step is not None:
                    pairs.add(step, _flat(local.gradient(batch)[1]) - g)
        return local.report(wanted)

    def _search(self, local: Local, batch: Tensor, g: Tensor, direction: Tensor) -> Tensor | None:
        """Move along the direction, halved until the loss falls. Returns the step; None if it never falls."""
        start, slope = local.loss(batch), float(g @ direction)
        before = local.point()
        for _ in range(_HALVINGS):
            _place(local, before, direction)
            if local.loss(batch) <= start + 1e-4 * slope:
                return _flat(local.point()) - _flat(before)  # the step after rounding
            direction, slope = direction / 2, slope / 2
        local.go(before)
        return None


def _flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([t.reshape(-1).double() for t in tensors])


def _place(local: Local, before: list[Tensor], direction: Tensor) -> None:
    moves = torch.split(direction, [p.numel() for p in before])
    local.go([old.double() + move.view_as(old) for old, move in zip(before, moves, strict=True)])
