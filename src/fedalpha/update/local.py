"""What solvers other than plain SGD share: a client's module with gradients on any batch."""

from __future__ import annotations

import torch
from torch import Tensor

from fedalpha.data.federations import Examples
from fedalpha.rng import Draws
from fedalpha.update.base import CHUNK, Broadcast, Report, Site


class Local:
    """A client during its update: loss and gradient of batches, and the report at the end."""

    def __init__(
        self, site: Site, broadcast: Broadcast, data: Examples, draws: Draws, weight_decay: float = 0.0
    ) -> None:
        self.site, self.data, self.draws = site, data, draws
        self.module = site.load(broadcast)
        self.module.train()
        self.weight_decay = weight_decay
        named = [(name, p) for name, p in self.module.named_parameters() if p.requires_grad]
        self.names = [name for name, _ in named]
        self.parameters = [p for _, p in named]
        self._here = site.place(data)
        self._everything = torch.arange(len(data))

    def gradient(self, batch: Tensor | None = None) -> tuple[float, list[Tensor]]:
        """Mean loss per sample and its gradient (with weight decay), on a batch or on all of the data."""
        parts = [batch] if batch is not None else torch.split(self._everything, CHUNK)
        total, size = 0.0, sum(len(part) for part in parts)
        sums: list[Tensor] = []
        for part in parts:
            with torch.enable_grad():
                loss = self._mean(part)
                gradients = torch.autograd.grad(loss, self.parameters, allow_unused=True, materialize_grads=True)
            share = len(part) / size
            total += share * loss.item()
            scaled = gradients if share == 1 else [share * g for g in gradients]
            sums = [a + b for a, b in zip(sums, scaled, strict=True)] if sums else list(scaled)
        if self.weight_decay:
            sums = [g.add(p.detach(), alpha=self.weight_decay) for g, p in zip(sums, self.parameters, strict=True)]
        return total, sums

    @torch.no_grad()
    def loss(self, batch: Tensor) -> float:
        """Mean loss per sample of a batch, with weight decay."""
        squares = sum(float(p.double().square().sum()) for p in self.parameters) if self.weight_decay else 0.0
        return self._mean(batch).item() + self.weight_decay / 2 * squares

    @torch.no_grad()
    def move(self, moves: list[Tensor], scale: float) -> None:
        """w ← w + scale·moves."""
        for p, move in zip(self.parameters, moves, strict=True):
            p.add_(move, alpha=scale)

    def report(self, train: float, steps: int, wanted: frozenset[str]) -> Report:
        losses = {"train": train}
        if "after" in wanted:
            losses["after"] = self.site.loss(self.module, self.data)
        return Report(self.draws.client, self.site.parameters(), losses, steps, len(self.data))

    def _mean(self, batch: Tensor) -> Tensor:
        target = self._here.y[batch]
        loss = self.site.task.loss(self.module(self._here.x[batch]), target)
        return loss if self.site.task.reduction == "mean" else loss / len(target)


class Last:
    """The mean loss per sample over the last epoch, as every solver reports it."""

    def __init__(self, steps: int, per_epoch: int) -> None:
        self._first = steps - min(steps, per_epoch)
        self._step = 0
        self._total, self._seen = 0.0, 0

    def add(self, loss: float, samples: int) -> None:
        if self._step >= self._first:
            self._total += loss * samples
            self._seen += samples
        self._step += 1

    @property
    def mean(self) -> float:
        return self._total / self._seen
