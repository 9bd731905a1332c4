"""FedPAGE: PAGE over the whole federation, with an estimate that the server keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from fedalpha.data.federations import Examples
from fedalpha.models import Parameters
from fedalpha.rng import Draws, generator
from fedalpha.select.base import Population
from fedalpha.select.fedpage import everybody
from fedalpha.select.fedpage import fedpage as everybody_or_few
from fedalpha.strategies.arguments import choice
from fedalpha.strategies.plug_point import AnyAlgorithm
from fedalpha.update.base import UPDATES, Broadcast, Report, Site
from fedalpha.update.local import Local, held, without_momentum
from fedalpha.update.page import corrected, mean_rate, moved_by
from fedalpha.update.sgd import sgd

_GRADIENT = "fedpage.gradient."
_BEFORE = "fedpage.before."


@UPDATES.register(
    formula="g_0 = ∇F_i(w_t) with chance p, else g + ∇F_i(w_t) − ∇F_i(w_{t−1}), then PAGE; g ← mean (w_t − w_i)/(K·lr)",
    reference="Zhao et al., 2021, 2108.04755",
    examples=("fedpage(lr=0.1, p=0.1)", "fedpage(lr=0.05, batch=16, steps=10, p=0.2, prior=size)"),
)
class fedpage(sgd):
    """PAGE over the whole federation: the server keeps an estimate g of the gradient of the mean of all F_i.

    Use it with the selection of the same name and the same ``p``: ``--select "fedpage(C=0.1, p=0.1)"``. With
    chance p, and in the first round, all clients take part and send ∇F_i(w_t), whose mean becomes g. In other rounds
    a client of the sampled cohort starts from g + ∇F_i(w_t) − ∇F_i(w_{t−1}), corrects that estimate by batches
    through K local steps without a new full gradient, and the cohort's mean of (w_t − w_i)/(K·lr) becomes g; for K = 1
    that is g + the mean of ∇F_i(w_t) − ∇F_i(w_{t−1}). So g also covers the absent clients, and a constant
    rate converges although clients differ. Both kinds of rounds move the server by −η_g·g with η_g = K·lr, as
    the mean of the models replaces the old one (a smaller step: ``--apply "fedavgm(lr=0.5, beta=0)"``).
    With another selection, g is renewed from the selected clients.

    g and w_{t−1} are sent with the broadcast (three times the bytes down, twice up); clients have no state.
    ``prior``: uniform (the reference; use it with ``FedAvg(prior=uniform)``) or size, where clients count by
    their data as in FedAvg. Give ``steps``, with K·lr well below 1/L as for gradient descent: a round is one gradient
    step of that length, and with ``epochs`` large clients would take a longer one.

    Sources: only the abstract and the introduction of the paper could be read (PAGE in place of local SGD, S of N
    clients per round, rounds that cost what SCAFFOLD's do). The steps are those of its implementation in the public
    code of Wu et al. (FedAMD, 2206.05891), without two errors there: K + 1 steps are divided by K, and the g that
    is kept includes the server's rate. Decided here: ∇F_i(w_t) and ∇F_i(w_{t−1}) are taken on all of a
    client's data; while there is no g, clients send ∇F_i(w_t); p is a constant (PAGE's is S/(N + S)).
    """

    p: float = field(default=0.1, metadata={"always": True})
    prior: str = "uniform"
    sends = (_GRADIENT,)

    def __post_init__(self) -> None:
        super().__post_init__()
        without_momentum(self)
        choice("fedpage", "prior", self.prior, ("uniform", "size"))
        if isinstance(self.p, bool) or not 0 < self.p <= 1:
            raise ValueError(f"fedpage: p = {self.p!r}; give the chance of a round with all clients, in (0, 1]")

    @property
    def against_stale(self) -> str:
        return "one random draw decides for all clients of a version whether they send full gradients"

    def check(self, algorithm: AnyAlgorithm) -> None:
        """The selection and the client update share one random draw, so both need the same ``p``."""
        select = algorithm.select
        if isinstance(select, everybody_or_few) and select.p != self.p:
            raise ValueError(
                f"fedpage: p = {select.p} in the selection and {self.p} in the client update; give the same to both"
            )

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
        start, rate, batches = local.point(), mean_rate(local), local.batches()
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
                moved = moved_by(estimate, direction, local.gradient()[1])
                local.go(start)
                local.saw(loss, len(next(batches)))
                local.move(moved, -rate)
                for batch in batches:
                    loss, moved = corrected(local, batch, moved, rate)
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
