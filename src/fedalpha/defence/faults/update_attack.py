"""What attacks on updates share: they replace the updates (moves) x_i = w_i − w_t of the acting clients.

Colluders know every honest update of the round (the usual worst case). Integer buffers do not change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from fedalpha.defence.faults.base import Fault, Scene
from fedalpha.models import Parameters
from fedalpha.update import Report
from fedalpha.update.base import misfit

Moves = dict[str, Tensor]
"""x = w − w_t by tensor, float64, floats only."""


class UpdateAttack(Fault):
    """Replaces the updates of the acting clients; a subclass computes what they send instead.

    A report that does not fit the broadcast model has no update: it does not change, and colluders ignore it.
    """

    def reports(self, scene: Scene, reports: list[Report]) -> list[Report]:
        sound = [r for r in reports if _fits(r, scene)]
        attackers = self.acting(scene, [r.id for r in sound])
        members = self.members(scene.seed, scene.clients)
        honest = [r for r in sound if r.id not in members]
        if not attackers:
            return reports
        forge = self.forger(scene, honest, len(attackers))
        acting = {r for r in sound if r.id in attackers}
        return [self._forged(r, scene, forge(r)) if r in acting else r for r in reports]

    def forger(self, scene: Scene, honest: list[Report], attackers: int) -> Callable[[Report], Moves]:
        """A function from an attacker's true report to the update that it sends."""
        raise NotImplementedError

    def _forged(self, report: Report, scene: Scene, moves: Moves) -> Report:
        assert report.parameters is not None
        sent = scene.broadcast.parameters
        parameters: Parameters = {
            name: (sent[name].double() + moves[name]).to(value.dtype) if name in moves else value
            for name, value in report.parameters.items()
        }
        return dataclasses.replace(report, parameters=parameters)


def _fits(report: Report, scene: Scene) -> bool:
    return report.parameters is not None and misfit(report.parameters, scene.broadcast.parameters) is None


def moves(report: Report, scene: Scene) -> Moves:
    """A client's update: what its training changed."""
    assert report.parameters is not None
    sent = scene.broadcast.parameters
    return {k: v.double() - sent[k].double() for k, v in report.parameters.items() if v.is_floating_point()}


def statistics(scene: Scene, honest: list[Report]) -> tuple[Moves, Moves]:
    """Mean and standard deviation of the honest updates, coordinate by coordinate (0 if no client is honest)."""
    each = [moves(r, scene) for r in honest]
    if not each:
        zero = {k: torch.zeros_like(v, dtype=torch.float64) for k, v in scene.broadcast.parameters.items()}
        zero = {k: v for k, v in zero.items() if scene.broadcast.parameters[k].is_floating_point()}
        return zero, zero
    stacks = {k: torch.stack([m[k] for m in each]) for k in each[0]}
    return {k: v.mean(0) for k, v in stacks.items()}, {k: v.std(0, correction=0) for k, v in stacks.items()}
