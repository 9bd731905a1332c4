"""PAGE: a variance-reduced local solver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedalpha.data.federations import Examples
from fedalpha.rng import Draws
from fedalpha.update.base import UPDATES, Broadcast, Report, Site, seeded
from fedalpha.update.local import Last, Local
from fedalpha.update.scaffold import without_momentum
from fedalpha.update.sgd import sgd


@UPDATES.register(
    formula="w⁺ = w − lr·g; g⁺ = ∇F_i(w⁺) with chance p, else g + ∇F_i(w⁺; batch) − ∇F_i(w; batch)",
    reference="Li et al., 2021, 2008.10898; Zhao et al., 2021, 2108.04755 (FedPAGE)",
    examples=("page(lr=0.1)", "page(lr=0.1, batch=8, steps=20, p=0.1)"),
)
@dataclass(frozen=True, eq=False, repr=False)
class page(sgd):  # noqa: N801 - written in lower case
    """The probabilistic gradient estimator: a full gradient now and then, cheap corrections in between.

    It starts from the client's full gradient, and its noise vanishes as the model settles, so a constant
    rate converges where SGD keeps jumping. ``p`` is the chance of a full gradient, b'/(b + b') by default
    (b' the batch, b the client's samples), which costs the same on average as two batches a step.

    This is the local solver alone: each client runs PAGE on its own F_i and begins every round with its
    own full gradient. FedPAGE also has a server part, which is not done here. As a public implementation has
    it (FedAMD's comparison), the server keeps an estimate g of the whole federation's gradient. With a
    chance p_r all N clients take part, send ∇F_i(w_t), and g becomes their mean. In other rounds a sampled
    cohort receives w_t, w_{t−1} and g; a client begins from g + ∇F_i(w_t) − ∇F_i(w_{t−1}), adds
    corrections from batches without ever starting anew, and g becomes the cohort's mean of
    (w_t − w_i)/(K·lr). In both, w_{t+1} = w_t − η_g·g. So with a part of the clients per round
    FedPAGE corrects for those who are absent and this does not: it drifts as SGD does, with less noise
    (against drift there is `scaffold`). What is missing is one coin that rules selection and client
    update at once, which are plug points of their own.
    """

    p: float | None = None

    text_name: ClassVar[str] = "page"

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
        local = Local(site, broadcast, data, draws, self.weight_decay)
        size = self.batch or len(data)
        chance = size / (size + len(data)) if self.p is None else self.p
        rate = self.rate(draws.round) * (1 if site.task.reduction == "mean" else min(size, len(data)))
        steps = self.count(len(data))
        last = Last(steps, self.per_epoch(len(data)))
        coin = draws("page")
        with seeded(draws.integer("torch"), site.device):
            batches = self.batches(len(data), draws("batches"))
            loss, estimate = local.gradient()
            last.add(loss, len(next(batches)))
            local.move(estimate, -rate)
            for batch in batches:
                if coin.random() < chance:
                    loss, estimate = local.gradient()
                else:
                    loss, here = local.gradient(batch)
                    local.move(estimate, rate)  # back to the point before, for the same batch
                    there = local.gradient(batch)[1]
                    local.move(estimate, -rate)
                    estimate = [g + (a - b) for g, a, b in zip(estimate, here, there, strict=True)]
                last.add(loss, len(batch))
                local.move(estimate, -rate)
        return local.report(last.mean, steps, wanted)
