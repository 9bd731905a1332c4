"""Values that are not finite."""

from __future__ import annotations

import dataclasses
import math

import torch

from fedalpha.defence.faults.base import FAULTS, Fault, Ids, Scene
from fedalpha.strategies import Array
from fedalpha.strategies.arguments import choice
from fedalpha.update import Report


@FAULTS.register(
    formula="NaN or ∞ in the loss, in the model, or in both",
    examples=("nan(clients=2)", "nan(p=0.2, value=inf, where=loss)", "nan(clients=1, where=model)"),
)
class nan(Fault):
    """Values that are not finite: ``value`` (nan, inf, or any number) in ``where`` (loss, model or both)."""

    value: float = math.nan
    where: str = "both"

    def __post_init__(self) -> None:
        super().__post_init__()
        choice("nan", "where", self.where, ("loss", "model", "both"))

    def losses(self, scene: Scene, ids: Ids, losses: Array) -> Array:
        if self.where == "model":
            return losses
        broken = self.acting(scene, ids.tolist())
        return losses if not broken else _with(losses, [i in broken for i in ids.tolist()], self.value)

    def reports(self, scene: Scene, reports: list[Report]) -> list[Report]:
        broken = self.acting(scene, [r.id for r in reports])
        return [self._break(r) if r.id in broken else r for r in reports]

    def _break(self, report: Report) -> Report:
        losses, parameters = dict(report.losses), report.parameters
        if self.where != "model":
            losses = dict.fromkeys(losses, self.value)
        if self.where != "loss" and parameters is not None:
            parameters = {k: v.clone(memory_format=torch.contiguous_format) for k, v in parameters.items()}
            first = next(v for v in parameters.values() if v.is_floating_point())
            first.view(-1)[-1] = self.value  # one coordinate is enough
        return dataclasses.replace(report, losses=losses, parameters=parameters)


def _with(losses: Array, mask: list[bool], value: float) -> Array:
    changed = losses.copy()
    changed[mask] = value
    return changed
