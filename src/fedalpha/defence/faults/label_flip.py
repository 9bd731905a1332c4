"""Training on flipped labels."""

from __future__ import annotations

from fedalpha.data.federations import Examples, Federation
from fedalpha.defence.faults.base import FAULTS, Fault, Ids
from fedalpha.strategies import Array


@FAULTS.register(formula="labels y → classes − 1 − y", examples=("label_flip(clients=2)",))
class label_flip(Fault):
    """Clients train on flipped labels: their true losses are high, so the Worse family gives them large weights."""

    def poison(self, federation: Federation, seed: int) -> Federation:
        return _Flipped(federation, self.members(seed, federation.clients))


class _Flipped(Federation):
    def __init__(self, honest: Federation, liars: set[int]) -> None:
        self.honest, self.liars = honest, liars
        for name in (
            "clients",
            "shape",
            "classes",
            "test",
            "validation",
            "test_owner",
            "description",
            "transform",
            "names",
        ):
            setattr(self, name, getattr(honest, name))

    def sizes(self, ids: Ids) -> Array:
        return self.honest.sizes(ids)

    def optima(self, ids: Ids) -> Array | None:
        return self.honest.optima(ids)

    def client(self, id: int) -> Examples:
        data = self.honest.client(id)
        return Examples(data.x, self.classes - 1 - data.y) if id in self.liars else data
