"""A learning rate for each client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from fedalpha.update.schedules.base import SCHEDULES, Schedule, positive


@SCHEDULES.register(formula="lr_i·decay^r", examples=("per_client([0.1, 0.05])", "per_client([0.1, 0.05], decay=0.99)"))
class per_client(Schedule):
    """Client i trains with ``rates[i]``, times ``decay`` to the power of the round.

    >>> per_client([0.1, 0.05]).of(round=3, client=1)
    0.05
    """

    rates: Sequence[float] = field(metadata={"positional": False})
    decay: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.rates, Sequence) or isinstance(self.rates, str) or not self.rates:
            raise ValueError(f"per_client: rates = {self.rates!r}; give a list with one learning rate per client")
        object.__setattr__(self, "rates", tuple(self.rates))
        for rate in self.rates:
            positive("per_client", rate=rate)
        positive("per_client", decay=self.decay)

    def __call__(self, round: int) -> float:
        raise ValueError("per_client: this client update has one learning rate for all clients; use sgd or local")

    def of(self, round: int, client: int) -> float:
        return self.rates[client] * self.decay**round

    def suits(self, clients: int) -> None:
        if len(self.rates) != clients:
            raise ValueError(f"per_client: {len(self.rates)} rates for {clients} clients; give one per client")
