"""Updates of the opposite sign."""

from __future__ import annotations

from collections.abc import Callable

from fedalpha.defence.faults.base import FAULTS, Scene
from fedalpha.defence.faults.update_attack import Moves, UpdateAttack, moves
from fedalpha.update import Report


@FAULTS.register(formula="x_i → −factor·x_i", reference="Allen-Zhu et al., 2021", examples=("sign_flip(clients=2)",))
class sign_flip(UpdateAttack):
    """Clients send the opposite of what they learned, ``factor`` times as large."""

    factor: float = 1.0

    def forger(self, scene: Scene, honest: list[Report], attackers: int) -> Callable[[Report], Moves]:
        return lambda report: {k: -self.factor * v for k, v in moves(report, scene).items()}
