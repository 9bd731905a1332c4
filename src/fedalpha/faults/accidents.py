"""What happens to honest clients: dropouts, stragglers, broken arithmetic, malformed or repeated messages."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from fedalpha.faults.base import FAULTS, Fault, Ids, Scene
from fedalpha.models import Parameters
from fedalpha.strategies import Array
from fedalpha.strategies.base import choice
from fedalpha.update import Report

_KINDS = ("shape", "broadcast", "dtype", "missing", "extra")


@FAULTS.register(formula="no report, with probability p", examples=("drop(p=0.1)",))
@dataclass(frozen=True, eq=False, repr=False)
class drop(Fault):  # noqa: N801 - written in lower case
    """Clients drop out: they are asked to train and never deliver."""

    text_name: ClassVar[str] = "drop"

    def reports(self, scene: Scene, reports: list[Report]) -> list[Report]:
        gone = self.acting(scene, [r.id for r in reports])
        return [r for r in reports if r.id not in gone]


@FAULTS.register(formula="the report takes ``delay`` seconds", examples=("straggler(p=0.2, delay=60)",))
@dataclass(frozen=True, eq=False, repr=False)
class straggler(Fault):  # noqa: N801
    """Clients are late by (simulated) seconds: with a ``deadline`` their reports are refused."""

    delay: float = field(default=60.0, metadata={"always": True})

    text_name: ClassVar[str] = "straggler"

    def reports(self, scene: Scene, reports: list[Report]) -> list[Report]:
        late = self.acting(scene, [r.id for r in reports])
        return [dataclasses.replace(r, delay=r.delay + self.delay) if r.id in late else r for r in reports]


@FAULTS.register(
    formula="NaN or ∞ in the loss, in the model, or in both",
    examples=("nan(clients=2)", "nan(p=0.2, value=inf, where=loss)", "nan(clients=1, where=model)"),
)
@dataclass(frozen=True, eq=False, repr=False)
class nan(Fault):  # noqa: N801
    """Arithmetic that broke down: ``value`` (nan, inf, or any number) in the ``where`` = loss, model or both."""

    value: float = math.nan
    where: str = "both"

    text_name: ClassVar[str] = "nan"

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


@FAULTS.register(
    formula="another shape, dtype, or set of tensors", examples=tuple(f"malformed(kind={k}, clients=1)" for k in _KINDS)
)
@dataclass(frozen=True, eq=False, repr=False)
class malformed(Fault):  # noqa: N801
    """A model of another form: ``kind`` is shape, broadcast (a shape that would be broadcast), dtype, missing
    (a tensor less) or extra (one more)."""

    kind: str = field(default="shape", metadata={"always": True})

    text_name: ClassVar[str] = "malformed"

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


@FAULTS.register(formula="a report of an earlier round, and its own one twice", examples=("replay(clients=1)",))
@dataclass(frozen=True, eq=False, repr=False)
class replay(Fault):  # noqa: N801
    """Messages repeat: each report arrives twice, and once more with the stamp of an earlier round or run."""

    text_name: ClassVar[str] = "replay"

    def reports(self, scene: Scene, reports: list[Report]) -> list[Report]:
        repeated = self.acting(scene, [r.id for r in reports])
        old = (scene.seed, scene.round - 1) if scene.round else (scene.seed + 1, 0)
        stale = [dataclasses.replace(r, origin=old) for r in reports if r.id in repeated]
        return [*stale, *reports, *(r for r in reports if r.id in repeated)]


def _with(losses: Array, mask: list[bool], value: float) -> Array:
    changed = losses.copy()
    changed[mask] = value
    return changed
