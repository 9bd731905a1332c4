"""PAGE, a variance-reduced local solver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedalpha.data.federations import Examples
from fedalpha.rng import Draws
from fedalpha.update.base import UPDATES, Broadcast, Report, Site
from fedalpha.update.local import Local, without_momentum
from fedalpha.update.sgd import sgd


@UPDATES.register(
    formula="w⁺ = w − lr·g; g⁺ = ∇F_i(w⁺) with chance p, else g + ∇F_i(w⁺; batch) − ∇F_i(w; batch)",
    reference="Li et al., 2021, 2008.10898",
    examples=("page(lr=0.1)", "page(lr=0.1, batch=8, steps=20, p=0.1)"),
)
class page(sgd):
    """The probabilistic gradient estimator: a full gradient in some steps, cheap corrections in the others.

    It starts from the client's full gradient. Its noise vanishes as the model converges, so a constant rate
    converges where SGD keeps moving. ``p`` is the chance of a full gradient, b'/(b + b') by default
    (b' the batch, b the client's samples), which costs the same on average as two batches per step.

    This is the local solver alone, on each client's own F_i: it drifts as SGD does, with less noise.
    `fedpage` carries the estimate from round to round and over all clients.
    """

    p: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        without_momentum(self)
        if self.p is not None and (isinstance(self.p, bool) or not 0 < self.p <= 1):
            raise ValueError(f"page: p = {self.p!r}; give the chance of a full gradient in (0, 1], or none")

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
        size = self.batch or len(data)
        chance = size / (size + len(data)) if self.p is None else self.p
        rate, coin, batches = mean_rate(local), draws("page"), local.batches()
        with local.seeded():
            loss, estimate = local.gradient()
            local.saw(loss, len(next(batches)))
            local.move(estimate, -rate)
            for batch in batches:
                fresh = coin.random() < chance
                loss, estimate = local.gradient() if fresh else corrected(local, batch, estimate, rate)
                local.saw(loss, len(batch))
                local.move(estimate, -rate)
        return local.report(wanted)


def mean_rate(local: Local) -> float:
    """The rate for mean gradients. If the task sums over samples, SGD's steps are longer by the batch size."""
    size = 1 if local.site.task.reduction == "mean" else min(local.method.batch or len(local.data), len(local.data))
    return local.rate * size


def corrected(local: Local, batch: Tensor, estimate: list[Tensor], rate: float) -> tuple[float, list[Tensor]]:
    """Loss and estimate after a step of −rate·estimate: the estimate plus the change of the batch's gradient."""
    loss, here = local.gradient(batch)
    local.move(estimate, rate)  # back to the previous point, for the same batch
    there = local.gradient(batch)[1]
    local.move(estimate, -rate)
    return loss, moved_by(estimate, here, there)


def moved_by(estimate: list[Tensor], here: list[Tensor], there: list[Tensor]) -> list[Tensor]:
    """The estimate of the gradient after the model has moved from one point to another."""
    return [g + (a - b) for g, a, b in zip(estimate, here, there, strict=True)]
