"""FedLAW: weights and a shrinking factor, learnt on the server's own data."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from fedalpha.combine.base import COMBINES, Combine, Reports
from fedalpha.fast.threads import single_thread
from fedalpha.models import Parameters
from fedalpha.strategies import Array, State
from fedalpha.strategies.plug_point import AnyAlgorithm
from fedalpha.update import Broadcast


@COMBINES.register(
    formula="γ·Σ λ_i·w_i, λ = softmax(x), γ = e^g; x from log alpha and g from 0, by Adam on the server's loss",
    reference="Li et al., 2023, 2302.10911",
    examples=("fedlaw", "fedlaw(lr=0.1, epochs=5, batch=32)"),
)
class fedlaw(Combine):
    """Learnable aggregation weights: the server optimises the combination of the models on validation data.

    It needs a part of the data that belongs to the server (``validation=0.1``). ``epochs`` passes over it in batches
    of ``batch``, in a fixed order, with Adam (betas 0.5 and 0.999) at the rate ``lr``, halved every 20 passes. alpha
    is the start value of the weights; the history has the learnt γ·λ. Running means of batch norm and other buffers
    are averaged with λ alone, and layers are in evaluation mode.

    Checked against the authors' code (ZexiLee/ICML-2023-FedLAW, server_funct="exp"), which shuffles the batches.
    """

    lr: float = field(default=0.01, metadata={"always": True})
    epochs: int = 20
    batch: int = 128

    def __post_init__(self) -> None:
        if isinstance(self.lr, bool) or not isinstance(self.lr, int | float) or not 0 < self.lr < math.inf:
            raise ValueError(f"fedlaw: lr = {self.lr!r}; give a positive number")
        for name in ("epochs", "batch"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"fedlaw: {name} = {value!r}; give a whole number of at least 1")

    @property
    def wants(self) -> frozenset[str]:
        return frozenset({"server"})

    def check(self, algorithm: AnyAlgorithm) -> None:
        if algorithm.combine is not self:
            raise ValueError(f"{algorithm.combine}: fedlaw learns from the models as they are sent; write {self} alone")
        if not algorithm.weigh.traits.simplex:
            raise ValueError(
                f"fedlaw starts from weights on the simplex; {algorithm.weigh} is off the simplex, choose another "
                "strategy"
            )

    def learn(self, broadcast: Broadcast, reports: Reports, alpha: Array, server: Any) -> Array:
        with single_thread():
            return self._learnt(broadcast, reports.models(), alpha, server)

    def _learnt(self, broadcast: Broadcast, models: list[Parameters], alpha: Array, server: Any) -> Array:
        module = broadcast.architecture.build()
        module.load_state_dict(broadcast.parameters)
        module.eval()
        names = [name for name, _ in module.named_parameters()]
        sizes = [broadcast.parameters[name].numel() for name in names]
        flat = torch.stack([torch.cat([m[name].flatten() for name in names]) for m in models])
        logits = torch.from_numpy(np.log(np.maximum(alpha, 1e-12))).to(flat.dtype).requires_grad_()
        log_gamma = torch.zeros((), dtype=flat.dtype, requires_grad=True)
        adam = torch.optim.Adam([logits, log_gamma], lr=self.lr, betas=(0.5, 0.999))
        schedule = torch.optim.lr_scheduler.StepLR(adam, step_size=20, gamma=0.5)
        data = server.validation
        for _ in range(self.epochs):
            for start in range(0, len(data), self.batch):
                part = data[slice(start, start + self.batch)]
                joint = log_gamma.exp() * logits.softmax(0) @ flat
                values = dict(zip(names, _split(joint, sizes, broadcast.parameters, names), strict=True))
                adam.zero_grad()
                loss = server.task.loss(functional_call(module, values, (part.x,)), part.y)
                loss.backward()
                adam.step()
            schedule.step()
        with torch.no_grad():
            found: Array = (log_gamma.exp() * logits.softmax(0)).double().numpy()
        return found

    def combine(
        self, state: State, broadcast: Broadcast, reports: Reports, alpha: Array, simplex: bool
    ) -> tuple[Broadcast, State]:
        """``alpha`` is γ·λ, as `learn` found it."""
        total, gamma = reports.weighted_sum(alpha), math.fsum(alpha.tolist())
        trained = {name for name, _ in broadcast.architecture.build().named_parameters()}
        parameters = {}
        for name, old in broadcast.parameters.items():
            shrunk = name in trained or not old.is_floating_point()
            parameters[name] = (total[name] if shrunk else total[name] / gamma).to(old.dtype).contiguous()
        return dataclasses.replace(broadcast, parameters=parameters), state


def _split(flat: Tensor, sizes: list[int], like: Parameters, names: list[str]) -> list[Tensor]:
    return [part.view(like[name].shape) for part, name in zip(torch.split(flat, sizes), names, strict=True)]
