"""Huge updates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from fedalpha.defence.faults.base import FAULTS, Scene
from fedalpha.defence.faults.update_attack import Moves, UpdateAttack, moves
from fedalpha.update import Report


@FAULTS.register(formula="x_i → factor·x_i", reference="model replacement", examples=("scale(factor=100, clients=1)",))
class scale(UpdateAttack):
    """Clients send a huge update."""

    factor: float = field(default=100.0, metadata={"always": True})

    def forger(self, scene: Scene, honest: list[Report], attackers: int) -> Callable[[Report], Moves]:
        return lambda report: {k: self.factor * v for k, v in moves(report, scene).items()}
