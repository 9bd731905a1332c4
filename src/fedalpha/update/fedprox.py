"""FedProx: SGD with a pull towards the received model."""

from __future__ import annotations

from dataclasses import field

from fedalpha.update.base import UPDATES
from fedalpha.update.sgd import sgd


@UPDATES.register(
    formula="w ← w − lr·(∇F_i(w; batch) + mu·(w − w_t))",
    reference="Li et al., 2020, 1812.06127",
    examples=("fedprox(mu=0.1, lr=0.1)",),
)
class fedprox(sgd):
    """Mini-batch SGD on F_i(w) + (mu/2)·‖w − w_t‖²; mu = 0 is SGD."""

    mu: float = field(default=0.01, metadata={"always": True})

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.mu >= 0:
            raise ValueError(f"fedprox: mu = {self.mu!r}; give a number ≥ 0")

    @property
    def pull(self) -> float:
        return self.mu
