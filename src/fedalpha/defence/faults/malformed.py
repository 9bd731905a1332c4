"""Models of another form."""

from __future__ import annotations

import dataclasses
from dataclasses import field

import torch

from fedalpha.defence.faults.base import FAULTS, Fault, Scene
from fedalpha.models import Parameters
from fedalpha.strategies.arguments import choice
from fedalpha.update import Report

_KINDS = ("shape", "broadcast", "dtype", "missing", "extra")


@FAULTS.register(
    formula="another shape, dtype, or set of tensors", examples=tuple(f"malformed(kind={k}, clients=1)" for k in _KINDS)
)
class malformed(Fault):
    """A model of another form: ``kind`` is shape, broadcast (a shape that would be broadcast), dtype, missing
    (one tensor less) or extra (one tensor more)."""

    kind: str = field(default="shape", metadata={"always": True})

    def __post_init__(self) -> None:
        super().__post_init__()
        choice("malformed", "kind", self.kind, _KINDS)

    def reports(self, scene: Scene, reports: list[Report]) -> list[Report]:
        broken = self.acting(scene, [r.id for r in reports])
        return [
            dataclasses.replace(r, parameters=self._change(r.parameters))
            if r.id in broken and r.parameters is not None
            else r
            for r in reports
        ]

    def _change(self, parameters: Parameters) -> Parameters:
        name, value = next(iter(parameters.items()))
        match self.kind:
            case "shape":
                return {**parameters, name: torch.cat([value, value])}
            case "broadcast":
                return {**parameters, name: value.reshape(-1)[:1]}
            case "dtype":
                return {**parameters, name: value.to(torch.float64)}
            case "missing":
                return {k: v for k, v in parameters.items() if k != name}
        return {**parameters, "surplus": torch.ones(3)}
