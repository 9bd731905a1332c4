"""Server optimisers: the pseudo-gradient Δ = w_t − aggregate goes through a rule with memory.

- `fedavgm`: momentum; smooths rounds with few or very different clients.
- `fedadagrad`, `fedadam`, `fedyogi`: a rate per coordinate; for sparse features and models where one
  server rate does not fit all layers. Yogi forgets large gradients more slowly than Adam.

Only trained parameters take the optimiser's step; buffers (running means, counters) come from the
aggregate. A tensor whose shape has changed is installed as it is, and its memory is reset.
"""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from dataclasses import field
from functools import lru_cache

import torch
from torch import Tensor

from fedalpha.apply.base import APPLIES, Apply
from fedalpha.models import Architecture
from fedalpha.strategies import State
from fedalpha.update import Broadcast


@lru_cache(maxsize=8)
def trained(architecture: Architecture) -> frozenset[str]:
    """The names of the parameters (not buffers) of an architecture."""
    return architecture.trained()


class Optimiser(Apply):
    """A server optimiser: ``move`` turns Δ and the memory of one tensor (float64) into a step."""

    lr: float = field(default=1.0, metadata={"always": True})

    def __post_init__(self) -> None:
        if isinstance(self.lr, bool) or not isinstance(self.lr, int | float) or not 0 < self.lr < math.inf:
            raise ValueError(f"{self.text_name}: lr = {self.lr!r}; give a positive number, the server's learning rate")

    @abstractmethod
    def move(self, delta: Tensor, memory: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """The step to subtract, and the tensor's next memory (empty in the first round). Pure."""

    def apply(self, state: State, broadcast: Broadcast, aggregate: Broadcast) -> tuple[Broadcast, State]:
        names = trained(aggregate.architecture)
        parameters, memories = {}, {}
        for name, value in aggregate.parameters.items():
            old = broadcast.parameters.get(name)
            parameters[name] = value
            if name in names and old is not None and old.shape == value.shape:
                wide = old.double()
                memory = state.get(name, {})
                fits = all(m.shape == value.shape for m in memory.values())
                step, memories[name] = self.move(wide - value.double(), memory if fits else {})
                parameters[name] = (wide - step).to(value.dtype)
        return dataclasses.replace(aggregate, parameters=parameters), memories


@APPLIES.register(
    formula="v ← beta·v + Δ, w ← w − lr·v",
    reference="Hsu et al., 2019, 1909.06335",
    examples=("fedavgm(lr=1, beta=0.9)",),
)
class fedavgm(Optimiser):
    """Server momentum; beta = 0 and lr = 1 is plain replacement."""

    beta: float = field(default=0.9, metadata={"always": True})

    def __post_init__(self) -> None:
        super().__post_init__()
        _decay("fedavgm", beta=self.beta)

    def move(self, delta: Tensor, memory: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        v = self.beta * memory["v"] + delta if memory else delta
        return self.lr * v, {"v": v}


class Adaptive(Optimiser):
    """m ← beta1·m + (1 − beta1)·Δ, w ← w − lr·m/(√v + tau); v starts at tau², and there is no bias correction."""

    lr: float = field(default=0.01, metadata={"always": True})
    beta1: float = 0.9
    tau: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        _decay(self.text_name, beta1=self.beta1)
        if isinstance(self.tau, bool) or not isinstance(self.tau, int | float) or not 0 < self.tau < math.inf:
            raise ValueError(f"{self.text_name}: tau = {self.tau!r}; give a positive number")

    @abstractmethod
    def second(self, v: Tensor, square: Tensor) -> Tensor:
        """The next v from Δ²."""

    def move(self, delta: Tensor, memory: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        m = memory["m"] if memory else torch.zeros_like(delta)
        v = memory["v"] if memory else torch.full_like(delta, self.tau**2)
        m = self.beta1 * m + (1 - self.beta1) * delta
        v = self.second(v, delta * delta)
        return self.lr * m / (v.sqrt() + self.tau), {"m": m, "v": v}


@APPLIES.register(
    formula="v ← v + Δ², w ← w − lr·m/(√v + tau)",
    reference="Reddi et al., 2021, 2003.00295",
    examples=("fedadagrad(lr=0.1)",),
)
class fedadagrad(Adaptive):
    """Adagrad at the server; beta1 = 0 by default, as in the paper's experiments."""

    beta1: float = 0.0

    def second(self, v: Tensor, square: Tensor) -> Tensor:
        return v + square


@APPLIES.register(
    formula="v ← beta2·v + (1 − beta2)·Δ², w ← w − lr·m/(√v + tau)",
    reference="Reddi et al., 2021, 2003.00295",
    examples=("fedadam(lr=0.01)",),
)
class fedadam(Adaptive):
    """Adam at the server."""

    beta2: float = 0.99

    def __post_init__(self) -> None:
        super().__post_init__()
        _decay(self.text_name, beta2=self.beta2)

    def second(self, v: Tensor, square: Tensor) -> Tensor:
        return self.beta2 * v + (1 - self.beta2) * square


@APPLIES.register(
    formula="v ← v − (1 − beta2)·Δ²·sign(v − Δ²), w ← w − lr·m/(√v + tau)",
    reference="Reddi et al., 2021, 2003.00295",
    examples=("fedyogi(lr=0.01)",),
)
class fedyogi(fedadam):
    """Yogi at the server: like Adam, but v changes by an amount that does not depend on v."""

    def second(self, v: Tensor, square: Tensor) -> Tensor:
        return v - (1 - self.beta2) * square * torch.sign(v - square)


def _decay(owner: str, **values: object) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise ValueError(f"{owner}: {name} = {value!r}; give a number in [0, 1)")
