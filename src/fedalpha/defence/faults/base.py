"""The interface of faults, and the engine that applies them."""

from __future__ import annotations

import dataclasses
from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedalpha.combine import Reports
from fedalpha.data.federations import Federation
from fedalpha.rng import generator
from fedalpha.round import Engine, Evaluation, Part, Sample, Train
from fedalpha.strategies import Array
from fedalpha.text import Registry, Spelled
from fedalpha.update import Broadcast, Report

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Scene:
    """Where a fault happens: the run's seed, the round, the number of registered clients, what was broadcast."""

    seed: int
    round: int
    clients: int
    broadcast: Broadcast


class Fault(Spelled, ABC):
    """A fault of some ``clients`` (a number, a share as a float, a list of ids, or none for all), each with
    probability ``p`` in each round.

    Faults with a number or a share of clients all use the same random order of clients in a run: the client of
    ``clients=1`` is among those of ``clients=2``.
    """

    clients: int | float | Sequence[int] | None = None
    p: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise ValueError(f"{self.text_name}: p = {self.p!r}; give a probability in [0, 1]")
        clients = self.clients
        if isinstance(clients, int | float) and (clients < 0 or (isinstance(clients, float) and clients > 1)):
            raise ValueError(
                f"{self.text_name}: clients = {clients!r}; give a number, a share (up to 1.0) or a list of ids"
            )

    def check(self, clients: int) -> None:
        """Raise ValueError if a federation of this many clients does not have those of the fault."""
        chosen = self.clients
        if isinstance(chosen, int) and chosen > clients:
            raise ValueError(f"fault = {self}: the federation has {clients} clients; give at most that many")
        if isinstance(chosen, Sequence) and (beyond := [i for i in chosen if not 0 <= int(i) < clients]):
            raise ValueError(
                f"fault = {self}: there is no client {beyond[0]}; the federation has the clients 0 to {clients - 1}"
            )

    @property
    def against_clock(self) -> str:
        """Why the fault does not work in simulated time; empty if it does."""
        return ""

    def members(self, seed: int, clients: int) -> set[int]:
        """The ids of the faulty clients."""
        chosen = self.clients
        if chosen is None:
            return set(range(clients))
        if isinstance(chosen, int | float):
            count = round(chosen * clients) if isinstance(chosen, float) else chosen
            order = generator(seed, "faulty clients").permutation(clients)
            return set(order[:count].tolist())
        return {int(i) for i in chosen}

    def acting(self, scene: Scene, ids: Sequence[int]) -> list[int]:
        """The clients among ``ids`` whose fault happens in this round."""
        members = self.members(scene.seed, scene.clients)
        return [i for i in ids if i in members and self._happens(scene, i)]

    def _happens(self, scene: Scene, id: int) -> bool:
        return self.p == 1 or generator(scene.seed, f"fault {self.text_name}", scene.round, id).random() < self.p

    def poison(self, federation: Federation, seed: int) -> Federation:
        """The federation after the faulty clients have changed their data."""
        return federation

    def losses(self, scene: Scene, ids: Ids, losses: Array) -> Array:
        """What the clients answer when they are asked for F_i(w_t)."""
        return losses

    def reports(self, scene: Scene, reports: list[Report]) -> list[Report]:
        """What arrives at the server. Reports may be removed, changed or added."""
        return reports


FAULTS: Registry[Fault] = Registry("fault", Fault, package=__package__)


class Faulty:
    """An engine whose clients have a fault, in one round. Every report is collected, as a fault cannot change a sum."""

    def __init__(self, engine: Engine, fault: Fault, seed: int, round: int, clients: int) -> None:
        self.engine, self.fault = engine, fault
        self.seed, self.round, self.clients = seed, round, clients

    def losses(self, broadcast: Broadcast, ids: Ids, sample: Sample | None = None) -> Array:
        return self.fault.losses(self._scene(broadcast), ids, self.engine.losses(broadcast, ids, sample))

    def update(self, broadcast: Broadcast, job: Train) -> Reports:
        reports = self.engine.update(broadcast, dataclasses.replace(job, alpha=None))
        return Reports(self.fault.reports(self._scene(broadcast), list(reports.items)))

    def _scene(self, broadcast: Broadcast) -> Scene:
        return Scene(self.seed, self.round, self.clients, broadcast)

    def evaluate(self, broadcast: Broadcast, part: Part) -> Evaluation:
        return self.engine.evaluate(broadcast, part)

    def close(self) -> None:
        self.engine.close()
