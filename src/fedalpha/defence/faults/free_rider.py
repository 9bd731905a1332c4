"""Clients that return the model unchanged."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fedalpha.defence.faults.base import FAULTS, Scene
from fedalpha.defence.faults.update_attack import Moves, UpdateAttack, moves
from fedalpha.update import Report


@FAULTS.register(formula="x_i → 0", reference="free-rider", examples=("free_rider(clients=2)",))
class free_rider(UpdateAttack):
    """Clients return the model unchanged: they are not refused, and the history lists them as idle."""

    def forger(self, scene: Scene, honest: list[Report], attackers: int) -> Callable[[Report], Moves]:
        return lambda report: {k: torch.zeros_like(v) for k, v in moves(report, scene).items()}
