"""FedLWS: the mean, with a slight shrinking of each layer, which is stronger if clients disagree."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import field

import torch
from torch import Tensor

from fedalpha.combine.base import COMBINES, Combine, Reports
from fedalpha.combine.mean import mean
from fedalpha.models import Parameters
from fedalpha.strategies import Array, State
from fedalpha.update import Broadcast


@COMBINES.register(
    formula="γ_l·Σ alpha_i·w_i for each layer l, γ_l = ‖w_t‖/(‖w_t‖ + τ_l·‖Σ alpha_i·w_i − w_t‖), "
    "τ_l = beta·mean‖Δ_i − mean Δ‖ within [low, high]",
    reference="Shi et al., 2025, 2503.15111",
    examples=("fedlws", "fedlws(beta=0.1, low=0, high=0.5)"),
)
class fedlws(Combine):
    """Layer-wise weight shrinking: a weight decay on the server that adapts to each layer and round.

    Δ_i = w_i − w_t. A layer is a run of tensors that ends with one called "…bias"; the tensors after the last such
    tensor form another layer. Integer buffers do not change.

    Checked against the authors' code (ChanglongShi/FedLWS).
    """

    beta: float = field(default=0.03, metadata={"always": True})
    low: float = 0.01
    high: float = 0.2

    def __post_init__(self) -> None:
        for name in ("beta", "low", "high"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise ValueError(f"fedlws: {name} = {value!r}; give a number ≥ 0")
        if self.low > self.high:
            raise ValueError(f"fedlws: low = {self.low} is above high = {self.high}; swap them")

    def combine(
        self, state: State, broadcast: Broadcast, reports: Reports, alpha: Array, simplex: bool
    ) -> tuple[Broadcast, State]:
        averaged, _ = mean().combine({}, broadcast, reports, alpha, simplex)
        models = reports.models()
        parameters = dict(averaged.parameters)
        for names in grouped(broadcast.parameters):
            old, new = (_joined(found, names) for found in (broadcast.parameters, averaged.parameters))
            moves = [_joined(m, names) - old for m in models]
            middle = torch.stack(moves).mean(dim=0)
            apart = math.fsum(float((move - middle).norm()) for move in moves) / len(moves)
            tau = min(max(self.beta * apart, self.low), self.high)
            size, change = float(old.norm()), float((new - old).norm())
            gamma = size / (size + tau * change) if size + tau * change > 0 else 1.0
            for name in names:
                value = averaged.parameters[name]
                parameters[name] = (gamma * value.double()).to(value.dtype)
        return dataclasses.replace(averaged, parameters=parameters), state


def grouped(parameters: Parameters) -> list[list[str]]:
    """The names of each layer's floating tensors: a layer ends with a bias.

    >>> grouped({"a.weight": torch.ones(1), "a.bias": torch.ones(1), "n": torch.tensor(1), "b.weight": torch.ones(1)})
    [['a.weight', 'a.bias'], ['b.weight']]
    """
    layers: list[list[str]] = [[]]
    for name, value in parameters.items():
        if value.is_floating_point():
            layers[-1].append(name)
        if "bias" in name:
            layers.append([])
    return [names for names in layers if names]


def _joined(parameters: Parameters, names: Sequence[str]) -> Tensor:
    return torch.cat([parameters[name].double().flatten() for name in names])
