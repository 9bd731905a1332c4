"""Several faults in one run."""

from __future__ import annotations

from dataclasses import field

from fedalpha.data.federations import Federation
from fedalpha.defence.faults.base import FAULTS, Fault, Ids, Scene
from fedalpha.strategies import Array
from fedalpha.update import Report


@FAULTS.register(
    formula="several faults, one after the other",
    examples=("together(lie(loss=1000000000.0, clients=1), sign_flip(clients=1), drop(p=0.1))",),
)
class together(Fault):
    """Several faults in one run: ``together(lie(loss=1e9, clients=1), sign_flip(clients=1))``."""

    faults: tuple[Fault, ...] = field(default=(), metadata={"positional": True})

    def __init__(self, *faults: Fault | str) -> None:
        if not faults:
            raise ValueError("together: give at least one fault, such as together(drop(p=0.1), lie(loss=1e9))")
        object.__setattr__(self, "clients", None)
        object.__setattr__(self, "p", 1.0)
        object.__setattr__(self, "faults", tuple(FAULTS.parse(f) for f in faults))

    @property
    def against_clock(self) -> str:
        return next((why for fault in self.faults if (why := fault.against_clock)), "")

    def check(self, clients: int) -> None:
        for fault in self.faults:
            fault.check(clients)

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
