"""Mini-batch SGD."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from fedalpha.data.federations import Examples
from fedalpha.rng import Draws
from fedalpha.update.base import UPDATES, Broadcast, Report, Site, Update, seeded
from fedalpha.update.schedules import SCHEDULES, Schedule, constant


@UPDATES.register(
    formula="w ← w − lr·∇F_i(w; batch), E epochs or a number of steps",
    reference="McMahan et al., 2017; Gower et al., 2019",
    examples=("sgd(lr=0.1)", "sgd(lr=0.05, batch=16, epochs=2, momentum=0.9, weight_decay=0.0001)"),
)
class sgd(Update):
    """Mini-batch SGD, ``epochs`` passes over the client's data or ``steps`` mini-batches.

    ``lr``: a number or a schedule such as ``exponential(0.001, rate=0.99)``. ``batch``: the batch size, or
    none for all of the data. ``drop_last`` leaves out the last batch of an epoch if it is short (batch norm cannot
    train on a single sample). Momentum starts at zero in every round. ``clip``: the largest norm of a batch's gradient.
    ``precision=bf16`` computes outputs and losses in bfloat16 where torch's autocast does; parameters stay as they are.
    """

    lr: float | str | Schedule = field(default=0.1, metadata={"always": True})
    batch: int | None = field(default=16, metadata={"always": True})
    epochs: int = field(default=1, metadata={"always": True})
    steps: int | None = None
    momentum: float = 0.0
    weight_decay: float = 0.0
    drop_last: bool = False
    clip: float | None = None
    precision: Literal["full", "bf16"] = "full"

    def __post_init__(self) -> None:
        self.check_batches()
        if not 0 <= self.momentum < 1:
            raise ValueError(f"{self.text_name}: momentum = {self.momentum!r}; give a number in [0, 1)")
        if not self.weight_decay >= 0:
            raise ValueError(f"{self.text_name}: weight_decay = {self.weight_decay!r}; give a number ≥ 0")

    def check_batches(self) -> None:
        """Check what does not depend on how steps are made."""
        rate = constant(self.lr) if isinstance(self.lr, int | float) else SCHEDULES.parse(self.lr)
        object.__setattr__(self, "lr", rate.lr if isinstance(rate, constant) else rate)
        for name in ("batch", "epochs", "steps"):
            value = getattr(self, name)
            optional = name != "epochs"
            if not (optional and value is None) and (
                isinstance(value, bool) or not isinstance(value, int) or value < 1
            ):
                raise ValueError(f"{self.text_name}: {name} = {value!r}; give a whole number of at least 1")
        if self.clip is not None and not 0 < self.clip < math.inf:
            raise ValueError(f"{self.text_name}: clip = {self.clip!r}; give a norm > 0, or leave it out")
        if self.precision not in ("full", "bf16"):
            raise ValueError(f"{self.text_name}: precision = {self.precision!r} is not one of full, bf16")

    def suits(self, clients: int) -> None:
        if isinstance(self.lr, Schedule):
            self.lr.suits(clients)

    def rate(self, round: int, client: int | None = None) -> float:
        """The learning rate of a round, or of one client in it."""
        if not isinstance(self.lr, Schedule):
            return float(self.lr)
        return self.lr(round) if client is None else self.lr.of(round, client)

    def count(self, samples: int) -> int:
        """The number of mini-batches for a client with this many samples."""
        return self.epochs * self.per_epoch(samples) if self.steps is None else self.steps

    def per_epoch(self, samples: int) -> int:
        size = min(self.batch or samples, samples)
        return samples // size if self.drop_last else math.ceil(samples / size)

    def batches(self, samples: int, rng: np.random.Generator) -> Iterator[torch.Tensor]:
        """Indices of each mini-batch: every epoch is a new permutation, the last batch may be short."""
        order = torch.from_numpy(self.order(samples, rng))
        return (order[cut] for cut in self.cuts(samples))

    def order(self, samples: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """The permutations of all epochs, one after the other."""
        epochs = self.epochs if self.steps is None else math.ceil(self.steps / self.per_epoch(samples))
        if epochs == 1:
            return rng.permutation(samples)
        return np.concatenate([rng.permutation(samples) for _ in range(epochs)])

    def cuts(self, samples: int) -> list[slice]:
        """Where each mini-batch lies in the `order`."""
        size, each = self.batch or samples, self.per_epoch(samples)
        starts = [(step // each * samples, step % each * size) for step in range(self.count(samples))]
        return [slice(epoch + start, epoch + min(start + size, samples)) for epoch, start in starts]

    @property
    def pull(self) -> float:
        """The strength of the pull towards the received model."""
        return 0.0

    def pulled(self, round: int) -> float:
        return self.rate(round) * self.pull

    def update(
        self,
        site: Site,
        broadcast: Broadcast,
        data: Examples,
        state: Mapping[str, Any],
        draws: Draws,
        wanted: frozenset[str] = frozenset(),
    ) -> Report:
        module = site.load(broadcast)
        module.train()
        here = site.place(data)
        parameters = [p for p in module.parameters() if p.requires_grad]
        move = self.mover(parameters, self.rate(draws.round, draws.client))
        steps = self.count(len(data))
        last_epoch = steps - min(steps, self.per_epoch(len(data)))
        total, seen = 0.0, 0
        change = site.changes(draws)
        with seeded(draws.integer("torch"), site.device), torch.enable_grad():
            for step, batch in enumerate(self.batches(len(data), draws("batches"))):
                target = here.y[batch]
                with self.arithmetic(site.device):
                    loss = site.task.loss(module(change(here.x[batch])), target)
                gradients = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
                move(gradients if self.clip is None else clipped(gradients, self.clip))
                del gradients  # or they would be in memory while the next ones are computed
                if step >= last_epoch:
                    total += site.task.per_sample(loss.item(), len(target)) * len(target)
                    seen += len(target)
        losses = {"train": total / seen}
        if "after" in wanted:
            losses["after"] = site.loss(module, data)
        return Report(draws.client, site.parameters(), losses, steps, len(data))

    def mover(self, parameters: Sequence[torch.Tensor], rate: float) -> Callable[[Sequence[torch.Tensor]], None]:
        """What moves the parameters, given their gradients; it keeps the velocities of one update."""
        start = [p.detach().clone() for p in parameters] if self.pull else []
        velocity: list[torch.Tensor] = []
        return lambda gradients: self.step(parameters, gradients, rate, velocity, start)

    def arithmetic(self, device: torch.device) -> AbstractContextManager[Any]:
        """The context in which outputs and losses are computed."""
        if self.precision == "full":
            return nullcontext()
        if not torch.amp.is_autocast_available(device.type):
            raise ValueError(f"precision = {self.precision}: {device.type} has no autocast; use precision=full")
        return torch.autocast(device.type, torch.bfloat16)

    @torch.no_grad()
    def step(
        self,
        parameters: Sequence[torch.Tensor],
        gradients: Sequence[torch.Tensor],
        rate: float,
        velocity: list[torch.Tensor],
        start: Sequence[torch.Tensor],
    ) -> None:
        """One step, bit for bit that of ``torch.optim.SGD``, which takes seconds to import."""
        moves = list(gradients)
        if start:
            moves = [g + self.pull * (p - origin) for g, p, origin in zip(moves, parameters, start, strict=True)]
        if self.weight_decay:
            moves = [g.add(p, alpha=self.weight_decay) for g, p in zip(moves, parameters, strict=True)]
        if self.momentum:
            if velocity:
                torch._foreach_mul_(velocity, self.momentum)
                torch._foreach_add_(velocity, moves)
            else:
                velocity += [g.clone() for g in moves]
            moves = velocity
        for p, move in zip(parameters, moves, strict=True):
            p.add_(move, alpha=-rate)


@torch.no_grad()
def clipped(gradients: Sequence[torch.Tensor], most: float) -> list[torch.Tensor]:
    """Gradients scaled down to the norm ``most``, all of them together; smaller ones as they are.

    >>> [g.tolist() for g in clipped([torch.tensor([3.0]), torch.tensor([4.0])], 1.0)]
    [[0.6000000238418579], [0.800000011920929]]
    """
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients]))
    scale = (most / norm).clamp(max=1.0).nan_to_num(nan=1.0)  # 0/0 where all gradients are 0
    return [g * scale for g in gradients]
