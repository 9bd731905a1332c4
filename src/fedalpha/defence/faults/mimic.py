"""Colluders that copy one honest client."""

from __future__ import annotations

from collections.abc import Callable

from fedalpha.defence.faults.base import FAULTS, Scene
from fedalpha.defence.faults.update_attack import Moves, UpdateAttack, moves
from fedalpha.update import Report


@FAULTS.register(
    formula="x_i → x_j of one honest client j",
    reference="Mimic: Karimireddy et al., 2022, 2006.09365",
    examples=("mimic(clients=2)",),
)
class mimic(UpdateAttack):
    """Colluders all copy the honest client with the lowest id: nothing looks wrong, one client counts many times."""

    def forger(self, scene: Scene, honest: list[Report], attackers: int) -> Callable[[Report], Moves]:
        if not honest:
            return lambda report: moves(report, scene)
        copied = moves(min(honest, key=lambda r: r.id), scene)
        return lambda report: copied
