"""What clients do on purpose, alone or in collusion.

Colluders know every honest update of the round (the usual worst case). Attacks on updates are written
for moves x_i = w_i − w_t; integer buffers are left alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedalpha.admission import misfit
from fedalpha.data.federations import Examples, Federation
from fedalpha.faults.base import FAULTS, Fault, Ids, Scene
from fedalpha.models import Parameters
from fedalpha.rng import generator
from fedalpha.strategies import Array
from fedalpha.update import Report


@FAULTS.register(
    formula="the loss is said to be ``loss``", examples=("lie(loss=1000000000.0, clients=1)", "lie(loss=0, clients=2)")
)
@dataclass(frozen=True, eq=False, repr=False)
class lie(Fault):  # noqa: N801 - written in lower case
    """Clients lie about their losses: a huge one owns the Worse family, a zero the Better family."""

    loss: float = field(default=1e9, metadata={"always": True})

    text_name: ClassVar[str] = "lie"

    def losses(self, scene: Scene, ids: Ids, losses: Array) -> Array:
        liars = self.acting(scene, ids.tolist())
        return np.where(np.isin(ids, liars), float(self.loss), losses)

    def reports(self, scene: Scene, reports: list[Report]) -> list[Report]:
        liars = self.acting(scene, [r.id for r in reports])
        return [
            dataclasses.replace(r, losses=dict.fromkeys(r.losses, float(self.loss))) if r.id in liars else r
            for r in reports
        ]


@FAULTS.register(formula="labels y → classes − 1 − y", examples=("label_flip(clients=2)",))
@dataclass(frozen=True, eq=False, repr=False)
class label_flip(Fault):  # noqa: N801
    """Clients train, in earnest, on flipped labels: their losses are high, so the Worse family amplifies them."""

    text_name: ClassVar[str] = "label_flip"

    def poison(self, federation: Federation, seed: int) -> Federation:
        return _Flipped(federation, self.members(seed, federation.clients))


class _Flipped(Federation):
    def __init__(self, honest: Federation, liars: set[int]) -> None:
        self.honest, self.liars = honest, liars
        for name in ("clients", "shape", "classes", "test", "validation", "test_owner", "description"):
            setattr(self, name, getattr(honest, name))

    def sizes(self, ids: Ids) -> Array:
        return self.honest.sizes(ids)

    def optima(self, ids: Ids) -> Array | None:
        return self.honest.optima(ids)

    def client(self, id: int) -> Examples:
        data = self.honest.client(id)
        return Examples(data.x, self.classes - 1 - data.y) if id in self.liars else data


Moves = dict[str, Tensor]
"""x = w − w_t by tensor, float64, floats only."""


@dataclass(frozen=True, eq=False, repr=False)
class UpdateAttack(Fault):
    """Replaces the moves of the acting clients; subclasses say by what.

    A report that does not fit the broadcast model has no move: it stays as it is, and colluders do not count it.
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
        """A function from an attacker's true report to the moves that it sends."""
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
    """What a client's training changed."""
    assert report.parameters is not None
    sent = scene.broadcast.parameters
    return {k: v.double() - sent[k].double() for k, v in report.parameters.items() if v.is_floating_point()}


def _statistics(scene: Scene, honest: list[Report]) -> tuple[Moves, Moves]:
    """Mean and standard deviation of the honest moves, coordinate by coordinate (0 if nobody is honest)."""
    each = [moves(r, scene) for r in honest]
    if not each:
        zero = {k: torch.zeros_like(v, dtype=torch.float64) for k, v in scene.broadcast.parameters.items()}
        zero = {k: v for k, v in zero.items() if scene.broadcast.parameters[k].is_floating_point()}
        return zero, zero
    stacks = {k: torch.stack([m[k] for m in each]) for k in each[0]}
    return {k: v.mean(0) for k, v in stacks.items()}, {k: v.std(0, correction=0) for k, v in stacks.items()}


@FAULTS.register(formula="x_i → −factor·x_i", reference="Allen-Zhu et al., 2021", examples=("sign_flip(clients=2)",))
@dataclass(frozen=True, eq=False, repr=False)
class sign_flip(UpdateAttack):  # noqa: N801
    """Clients send the opposite of what they learned, ``factor`` times as large."""

    factor: float = 1.0

    text_name: ClassVar[str] = "sign_flip"

    def forger(self, scene: Scene, honest: list[Report], attackers: int) -> Callable[[Report], Moves]:
        return lambda report: {k: -self.factor * v for k, v in moves(report, scene).items()}


@FAULTS.register(formula="x_i → factor·x_i", reference="model replacement", examples=("scale(factor=100, clients=1)",))
@dataclass(frozen=True, eq=False, repr=False)
class scale(UpdateAttack):  # noqa: N801
    """Clients send a huge update."""

    factor: float = field(default=100.0, metadata={"always": True})

    text_name: ClassVar[str] = "scale"

    def forger(self, scene: Scene, honest: list[Report], attackers: int) -> Callable[[Report], Moves]:
        return lambda report: {k: self.factor * v for k, v in moves(report, scene).items()}


@FAULTS.register(formula="x_i → N(0, sigma²)", examples=("gaussian(sigma=1.0, clients=1)",))
@dataclass(frozen=True, eq=False, repr=False)
class gaussian(UpdateAttack):  # noqa: N801
    """Clients send noise of standard deviation ``sigma``."""

    sigma: float = field(default=1.0, metadata={"always": True})

    text_name: ClassVar[str] = "gaussian"

    def forger(self, scene: Scene, honest: list[Report], attackers: int) -> Callable[[Report], Moves]:
        def forge(report: Report) -> Moves:
            rng = generator(scene.seed, "gaussian attack", scene.round, report.id)
            true = moves(report, scene)
            return {k: torch.from_numpy(self.sigma * rng.standard_normal(tuple(v.shape))) for k, v in true.items()}

        return forge


@FAULTS.register(formula="x_i → 0", reference="free-rider", examples=("free_rider(clients=2)",))
@dataclass(frozen=True, eq=False, repr=False)
class free_rider(UpdateAttack):  # noqa: N801
    """Clients send the model back as it came: legal, and flagged in the history as idle."""

    text_name: ClassVar[str] = "free_rider"

    def forger(self, scene: Scene, honest: list[Report], attackers: int) -> Callable[[Report], Moves]:
        return lambda report: {k: torch.zeros_like(v) for k, v in moves(report, scene).items()}


@FAULTS.register(
    formula="x_i → mean − z·deviation of the honest moves",
    reference="A Little Is Enough: Baruch et al., 2019, 1902.06156",
    examples=("alie(clients=2)", "alie(z=1.5, clients=2)"),
)
@dataclass(frozen=True, eq=False, repr=False)
class alie(UpdateAttack):  # noqa: N801
    """Colluders hide within the spread of the honest updates; ``z`` none: the largest that a majority hides."""

    z: float | None = None

    text_name: ClassVar[str] = "alie"

    def forger(self, scene: Scene, honest: list[Report], attackers: int) -> Callable[[Report], Moves]:
        mean, deviation = _statistics(scene, honest)
        z = self.z if self.z is not None else hiding(len(honest) + attackers, attackers)
        forged = {k: mean[k] - z * deviation[k] for k in mean}
        return lambda report: forged


def hiding(n: int, f: int) -> float:
    """z of ALIE: the attackers need s = ⌊n/2⌋ + 1 − f honest supporters, Φ(z) = (n − f − s)/(n − f).

    >>> round(hiding(50, 24), 2)  # Baruch et al., section 3.2: s = 2, Φ(z) = 24/26
    1.43
    """
    from scipy.stats import norm

    supporters = n // 2 + 1 - f
    if n <= f:
        return 1.0
    share = (n - f - supporters) / (n - f)
    return float(norm.ppf(min(max(share, 1e-3), 1 - 1e-3)))


@FAULTS.register(
    formula="x_i → −epsilon·mean of the honest moves",
    reference="Inner-product manipulation: Xie et al., 2020, 1903.03936",
    examples=("ipm(epsilon=0.5, clients=2)",),
)
@dataclass(frozen=True, eq=False, repr=False)
class ipm(UpdateAttack):  # noqa: N801
    """Colluders turn the aggregate against the true direction."""

    epsilon: float = field(default=0.5, metadata={"always": True})

    text_name: ClassVar[str] = "ipm"

    def forger(self, scene: Scene, honest: list[Report], attackers: int) -> Callable[[Report], Moves]:
        mean, _ = _statistics(scene, honest)
        forged = {k: -self.epsilon * v for k, v in mean.items()}
        return lambda report: forged


@FAULTS.register(
    formula="x_i → x_j of one honest client j",
    reference="Mimic: Karimireddy et al., 2022, 2006.09365",
    examples=("mimic(clients=2)",),
)
@dataclass(frozen=True, eq=False, repr=False)
class mimic(UpdateAttack):  # noqa: N801
    """Colluders all copy the honest client with the lowest id: nothing looks wrong, one client counts many times."""

    text_name: ClassVar[str] = "mimic"

    def forger(self, scene: Scene, honest: list[Report], attackers: int) -> Callable[[Report], Moves]:
        if not honest:
            return lambda report: moves(report, scene)
        copied = moves(min(honest, key=lambda r: r.id), scene)
        return lambda report: copied


@FAULTS.register(
    formula="several faults, one after the other",
    examples=("together(lie(loss=1000000000.0, clients=1), sign_flip(clients=1), drop(p=0.1))",),
)
@dataclass(frozen=True, eq=False, repr=False)
class together(Fault):  # noqa: N801
    """Several faults in one run: ``together(lie(loss=1e9, clients=1), sign_flip(clients=1))``."""

    faults: tuple[Fault, ...] = field(default=(), metadata={"positional": True})

    text_name: ClassVar[str] = "together"

    def __init__(self, *faults: Fault | str) -> None:
        if not faults:
            raise ValueError("together: give at least one fault, such as together(drop(p=0.1), lie(loss=1e9))")
        object.__setattr__(self, "clients", None)
        object.__setattr__(self, "p", 1.0)
        object.__setattr__(self, "faults", tuple(FAULTS.parse(f) for f in faults))

    def members(self, seed: int, clients: int) -> set[int]:
        return set().union(*(f.members(seed, clients) for f in self.faults))

    def poison(self, federation: Federation, seed: int) -> Federation:
        for fault in self.faults:
            federation = fault.poison(federation, seed)
        return federation

    def losses(self, scene: Scene, ids: Ids, losses: Array) -> Array:
        for fault in self.faults:
            losses = fault.losses(scene, ids, losses)
        return losses

    def reports(self, scene: Scene, reports: list[Report]) -> list[Report]:
        for fault in self.faults:
            reports = fault.reports(scene, reports)
        return reports
