"""FedAWARE: the shortest vector in the convex hull of the clients' directions, which are kept over the rounds."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import field

import numpy as np
import torch
from torch import Tensor

from fedalpha.combine.base import COMBINES, Combine, Reports
from fedalpha.models import Parameters
from fedalpha.strategies import Array, State
from fedalpha.strategies.fedmgda import smallest_in_hull
from fedalpha.update import Broadcast


@COMBINES.register(
    formula="w_t − lr·Σ λ_i·m_i/‖m_i‖, m_i ← (1 − momentum)·m_i + momentum·(w_t − w_i) for the cohort, "
    "λ = argmin ‖Σ λ_i·m_i/‖m_i‖‖² over all clients seen",
    reference="Zeng et al., 2023, 2310.02702",
    examples=("fedaware(lr=1)", "fedaware(lr=0.5, momentum=0.2)"),
)
class fedaware(Combine):
    """Adaptive weights over *all* clients that have taken part so far, also those absent from the round.

    The server keeps a running mean m_i of each client's updates (one model per client) and moves along the shortest
    vector in the hull of their directions, which is long only if clients agree. alpha determines
    which clients are used (alpha > 0), not their weights. ``lr`` is the length scale of a step, because directions have
    length 1.

    Checked against the authors' code (dunzeng/FedAWARE), whose Frank–Wolfe solver stops earlier. Until every
    client has taken part, that code takes FedAvg's step.
    """

    lr: float = field(default=1.0, metadata={"always": True})
    momentum: float = 0.5

    def __post_init__(self) -> None:
        if isinstance(self.lr, bool) or not isinstance(self.lr, int | float) or not 0 < self.lr < math.inf:
            raise ValueError(f"fedaware: lr = {self.lr!r}; give a positive number, the server's learning rate")
        if isinstance(self.momentum, bool) or not 0 < self.momentum <= 1:
            raise ValueError(f"fedaware: momentum = {self.momentum!r}; give a share in (0, 1]")

    def init(self) -> State:
        return {"clients": {}}

    def combine(
        self, state: State, broadcast: Broadcast, reports: Reports, alpha: Array, simplex: bool
    ) -> tuple[Broadcast, State]:
        sent = _flat(broadcast.parameters)
        known: dict[str, Tensor] = {k: v for k, v in state["clients"].items() if v.shape == sent.shape}
        for report, model, weight in zip(reports.items, reports.models(), alpha.tolist(), strict=True):
            if weight > 0:
                move = sent.double() - _flat(model).double()
                old = known.get(str(report.id))
                kept = 0.0 if old is None else (1 - self.momentum) * old.double()
                known[str(report.id)] = (kept + self.momentum * move).to(sent.dtype)
        if not known:
            return broadcast, {"clients": known}
        step = self.lr * direction([known[id] for id in sorted(known, key=int)])
        parameters, start = {}, 0
        for name, old in broadcast.parameters.items():
            parameters[name] = old
            if old.is_floating_point():
                part = step[start : start + old.numel()].reshape(old.shape)
                parameters[name], start = (old.double() - part).to(old.dtype), start + old.numel()
        return dataclasses.replace(broadcast, parameters=parameters), {"clients": known}


def direction(momenta: list[Tensor]) -> Tensor:
    """The shortest vector in the hull of the vectors, each scaled to length 1 (0 stays 0).

    >>> direction([torch.tensor([2.0, 0.0]), torch.tensor([0.0, 5.0])]).tolist()
    [0.5, 0.5]
    """
    vectors = torch.stack(momenta).double()
    lengths = vectors.norm(dim=1, keepdim=True)
    units = vectors / torch.where(lengths > 0, lengths, torch.ones_like(lengths))
    n = len(momenta)
    share = smallest_in_hull((units @ units.T).numpy(), np.full(n, 1 / n), 1.0)
    return torch.from_numpy(share) @ units


def _flat(parameters: Parameters) -> Tensor:
    return torch.cat([v.flatten() for v in parameters.values() if v.is_floating_point()])
