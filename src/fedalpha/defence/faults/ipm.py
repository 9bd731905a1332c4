"""Inner-product manipulation: colluders against the true direction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from fedalpha.defence.faults.base import FAULTS, Scene
from fedalpha.defence.faults.update_attack import Moves, UpdateAttack, statistics
from fedalpha.update import Report


@FAULTS.register(
    formula="x_i → −epsilon·mean of the honest moves",
    reference="Inner-product manipulation: Xie et al., 2020, 1903.03936",
    examples=("ipm(epsilon=0.5, clients=2)",),
)
class ipm(UpdateAttack):
    """Colluders turn the aggregate against the true direction."""

    epsilon: float = field(default=0.5, metadata={"always": True})

    def forger(self, scene: Scene, honest: list[Report], attackers: int) -> Callable[[Report], Moves]:
        mean, _ = statistics(scene, honest)
        forged = {k: -self.epsilon * v for k, v in mean.items()}
        return lambda report: forged
