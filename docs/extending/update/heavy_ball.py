"""SGD with momentum that lasts."""

from collections.abc import Mapping
from typing import Any

import torch

from fedalpha.data.federations import Examples
from fedalpha.rng import Draws
from fedalpha.update import UPDATES, Broadcast, Report, Site, sgd
from fedalpha.update.local import Local, held


@UPDATES.register(
    formula="v_i ← beta·v_i + ∇F_i(w; batch), w ← w − lr·v_i; v_i is kept", examples=("heavy_ball(lr=0.1)",)
)
class heavy_ball(sgd):
    """SGD with momentum ``beta``; each client keeps its velocity v_i from round to round."""

    beta: float = 0.9

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
        velocity = held(state.get("velocity", {}), "", local.names, local.parameters)
        velocity = velocity or [torch.zeros_like(p) for p in local.point()]
        with local.seeded():
            for batch in local.batches():
                loss, gradients = local.gradient(batch)
                velocity = [self.beta * v + g for v, g in zip(velocity, gradients, strict=True)]
                local.move(velocity, -local.rate)
                local.saw(loss, len(batch))
        kept = {name: v.cpu() for name, v in zip(local.names, velocity, strict=True)}
        return local.report(wanted, state={"velocity": kept})
