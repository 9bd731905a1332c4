"""Updates that are noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

import torch

from fedalpha.defence.faults.base import FAULTS, Scene
from fedalpha.defence.faults.update_attack import Moves, UpdateAttack, moves
from fedalpha.rng import generator
from fedalpha.update import Report


@FAULTS.register(formula="x_i → N(0, sigma²)", examples=("gaussian(sigma=1.0, clients=1)",))
class gaussian(UpdateAttack):
    """Clients send noise of standard deviation ``sigma``."""

    sigma: float = field(default=1.0, metadata={"always": True})

    def forger(self, scene: Scene, honest: list[Report], attackers: int) -> Callable[[Report], Moves]:
        def forge(report: Report) -> Moves:
            rng = generator(scene.seed, "gaussian attack", scene.round, report.id)
            true = moves(report, scene)
            return {k: torch.from_numpy(self.sigma * rng.standard_normal(tuple(v.shape))) for k, v in true.items()}

        return forge
