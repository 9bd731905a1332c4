"""PAGE, a variance-reduced local solver, and FedPAGE, which keeps its estimate on the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from fedalpha.data.federations import Examples
from fedalpha.models import Parameters
from fedalpha.rng import Draws, generator
from fedalpha.select.base import Population, Select
from fedalpha.select.fedpage import everybody
from fedalpha.select.fedpage import fedpage as everybody_or_few
from fedalpha.strategies.base import choice
from fedalpha.update.base import UPDATES, Broadcast, Report, Site, Update
from fedalpha.update.local import Local, held, without_momentum
from fedalpha.update.sgd import sgd

_GRADIENT, _BEFORE = "fedpage.gradient.", "fedpage.before."


@UPDATES.register(
    formula="w⁺ = w − lr·g; g⁺ = ∇F_i(w⁺) with chance p, else g + ∇F_i(w⁺; batch) − ∇F_i(w; batch)",
    reference="Li et al., 2021, 2008.10898",
    examples=("page(lr=0.1)", "page(lr=0.1, batch=8, steps=20, p=0.1)"),
)
@dataclass(frozen=True, eq=False, repr=False)
class page(sgd):  # noqa: N801 - written in lower case
    """The probabilistic gradient estimator: a full gradient now and then, cheap corrections in between.

    It starts from the client's full gradient, and its noise vanishes as the model settles, so a constant
    rate converges where SGD keeps jumping. ``p`` is the chance of a full gradient, b'/(b + b') by default
    (b' the batch, b the client's samples), which costs the same on average as two batches a step.

    This is the local solver alone, on each client's own F_i: it drifts as SGD does, with less noise.
    `fedpage` carries the estimate from round to round and over all clients.
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
        local = Local(self, site, broadcast, data, draws)
        size = self.batch or len(data)
        chance = size / (size + len(data)) if self.p is None else self.p
        rate, coin, batches = _rate(local), draws("page"), local.batches()
        with local.seeded():
            loss, estimate = local.gradient()
            local.saw(loss, len(next(batches)))
            local.move(estimate, -rate)
            for batch in batches:
                fresh = coin.random() < chance
                loss, estimate = local.gradient() if fresh else _corrected(local, batch, estimate, rate)
                local.saw(loss, len(batch))
                local.move(estimate, -rate)
        return local.report(wanted)


@UPDATES.register(
    formula="g_0 = ∇F_i(w_t) with chance p, else g + ∇F_i(w_t) − ∇F_i(w_{t−1}), then PAGE; g ← mean (w_t − w_i)/(K·lr)",
    reference="Zhao et al., 2021, 2108.04755",
    examples=("fedpage(lr=0.1, p=0.1)", "fedpage(lr=0.05, batch=16, steps=10, p=0.2, prior=size)"),
)
@dataclass(frozen=True, eq=False, repr=False)
class fedpage(sgd):  # noqa: N801
    """PAGE over the whole federation: the server keeps an estimate g of the gradient of the mean of all F_i.

    Use it with the selection of the same name and the same ``p``: ``--select "fedpage(C=0.1, p=0.1)"``. With
    chance p, and at first, everybody takes part and sends ∇F_i(w_t), whose mean becomes g. In other rounds a client
    of the sampled cohort starts from g + ∇F_i(w_t) − ∇F_i(w_{t−1}), corrects that by batches through K local
    steps without ever starting anew, and the cohort's mean of (w_t − w_i)/(K·lr) becomes g; for K = 1 that
    is g + the mean of ∇F_i(w_t) − ∇F_i(w_{t−1}). So those who are absent are not forgotten, and a constant
    rate converges although clients differ. Both kinds of rounds move the server by −η_g·g with η_g = K·lr, as
    the mean of the models replaces the old one (a smaller step: ``--apply "fedavgm(lr=0.5, beta=0)"``).
    With another selection g is renewed by whoever is chosen.

    g and w_{t−1} travel with the broadcast (three times the bytes down, twice up); clients keep nothing.
    ``prior``: uniform (the reference; use it with ``FedAvg(prior=uniform)``) or size, where clients count by
    their data as in FedAvg. Give ``steps``, with K·lr well below 1/L as for gradient descent: a round is one gradient
    step of that length, and with ``epochs`` large clients would take a longer one.

    Sources: of the paper only abstract and introduction could be read (PAGE in place of local SGD, S of N clients
    a round, rounds that cost what SCAFFOLD's do). The steps are those of its implementation in the public code
    of Wu et al. (FedAMD, 2206.05891), without two slips there: K + 1 steps are divided by K, and the g that
    is kept includes the server's rate. Settled here: ∇F_i(w_t) and ∇F_i(w_{t−1}) are taken on all of a
    client's data; while there is no g, clients send ∇F_i(w_t); p is a constant (PAGE's is S/(N + S)).
    """

    p: float = field(default=0.1, metadata={"always": True})
    prior: str = "uniform"

    text_name: ClassVar[str] = "fedpage"

    def __post_init__(self) -> None:
        super().__post_init__()
        without_momentum(self)
        choice("fedpage", "prior", self.prior, ("uniform", "size"))
        if isinstance(self.p, bool) or not 0 < self.p <= 1:
            raise ValueError(f"fedpage: p = {self.p!r}; give the chance of a round with everybody, in (0, 1]")

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
        start, rate, batches = local.point(), _rate(local), local.batches()
        estimate = held(broadcast.extras, _GRADIENT, local.names, start)
        before = held(broadcast.extras, _BEFORE, local.names, start)
        with local.seeded():
            loss, direction = local.gradient()
            if estimate is None or before is None or everybody(generator(draws.seed, "cohort", draws.round), self.p):
                for batch in batches:
                    local.saw(loss, len(batch))
                local.move(direction, -local.steps * rate)
            else:
                local.go(before)
                moved = _sum(estimate, direction, local.gradient()[1])
                local.go(start)
                local.saw(loss, len(next(batches)))
                local.move(moved, -rate)
                for batch in batches:
                    loss, moved = _corrected(local, batch, moved, rate)
                    local.saw(loss, len(batch))
                    local.move(moved, -rate)
                length, direction = local.steps * rate, moved
                if length > 0:
                    direction = [(x - y.detach()) / length for x, y in zip(start, local.parameters, strict=True)]
        return local.report(wanted, {_GRADIENT + n: d.cpu() for n, d in zip(local.names, direction, strict=True)})

    def absorb(self, broadcast: Broadcast, reports: Sequence[Report], population: Population) -> Parameters:
        ids = np.array([r.id for r in reports], dtype=np.int64)
        weights = population.sizes(ids).tolist() if self.prior == "size" else [1.0] * len(reports)
        extras = dict(broadcast.extras)
        for name in sorted({name for report in reports for name in report.extras if name.startswith(_GRADIENT)}):
            values = [r.extras[name] for r in reports]
            summed = sum(w * value.double() for w, value in zip(weights, values, strict=True))
            extras[name] = (summed / sum(weights)).to(values[0].dtype)
            plain = name.removeprefix(_GRADIENT)
            extras[_BEFORE + plain] = broadcast.parameters[plain]
        return extras


def one_coin(select: Select, update: Update) -> None:
    """Refuse the two parts of FedPAGE with two chances."""
    if isinstance(select, everybody_or_few) and isinstance(update, fedpage) and select.p != update.p:
        raise ValueError(
            f"fedpage: p = {select.p} in the selection and {update.p} in the client update; give the same to both"
        )


def _rate(local: Local) -> float:
    """The rate for mean gradients: where the task sums, a step of SGD is that many samples longer."""
    size = 1 if local.site.task.reduction == "mean" else min(local.method.batch or len(local.data), len(local.data))
    return local.rate * size


def _corrected(local: Local, batch: Tensor, estimate: list[Tensor], rate: float) -> tuple[float, list[Tensor]]:
    """Loss and estimate after a step of −rate·estimate: the estimate plus the change of the batch's gradient."""
    loss, here = local.gradient(batch)
    local.move(estimate, rate)  # back to the point before, for the same batch
    there = local.gradient(batch)[1]
    local.move(estimate, -rate)
    return loss, _sum(estimate, here, there)


def _sum(estimate: list[Tensor], here: list[Tensor], there: list[Tensor]) -> list[Tensor]:
    return [g + (a - b) for g, a, b in zip(estimate, here, there, strict=True)]
