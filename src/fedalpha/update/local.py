"""What solvers other than plain SGD share: a client's module with gradients on any batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from fedalpha.data.federations import Examples
from fedalpha.rng import Draws
from fedalpha.update.base import CHUNK, Broadcast, Report, Site, seeded
from fedalpha.update.sgd import sgd


class Local:
    """A client during its update: its batches, their losses and gradients, and the report at the end."""

    def __init__(self, method: sgd, site: Site, broadcast: Broadcast, data: Examples, draws: Draws) -> None:
        if method.clip is not None or method.precision != "full":
            raise ValueError(f"{method.text_name}: the method has neither clip nor precision; leave them out")
        self.method, self.site, self.data, self.draws = method, site, data, draws
        self.module = site.load(broadcast)
        self.module.train()
        named = [(name, p) for name, p in self.module.named_parameters() if p.requires_grad]
        self.names = [name for name, _ in named]
        self.parameters = [p for _, p in named]
        self.steps, self.rate = method.count(len(data)), method.rate(draws.round)
        self._here = site.place(data)
        if site.transform is not None:  # once a round: a method may look at a batch several times
            self._here = Examples(site.changes(draws)(self._here.x), self._here.y)
        self._everything = torch.arange(len(data))
        self._step, self._total, self._seen = 0, 0.0, 0

    def seeded(self) -> AbstractContextManager[None]:
        """Within this context torch's own draws are seeded for this client and round."""
        return seeded(self.draws.integer("torch"), self.site.device)

    def batches(self) -> Iterator[Tensor]:
        return self.method.batches(len(self.data), self.draws("batches"))

    def point(self) -> list[Tensor]:
        """A copy of the parameters as they are now."""
        return [p.detach().clone() for p in self.parameters]

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
        if decay := self.method.weight_decay:
            sums = [g.add(p.detach(), alpha=decay) for g, p in zip(sums, self.parameters, strict=True)]
        return total, sums

    @torch.no_grad()
    def loss(self, batch: Tensor) -> float:
        """Mean loss per sample of a batch, with weight decay."""
        decay = self.method.weight_decay
        squares = sum(float(p.double().square().sum()) for p in self.parameters) if decay else 0.0
        return self._mean(batch).item() + decay / 2 * squares

    @torch.no_grad()
    def move(self, moves: Sequence[Tensor], scale: float) -> None:
        """w ← w + scale·moves."""
        for p, move in zip(self.parameters, moves, strict=True):
            p.add_(move, alpha=scale)

    @torch.no_grad()
    def go(self, point: Sequence[Tensor]) -> None:
        """w ← point."""
        for p, value in zip(self.parameters, point, strict=True):
            p.copy_(value)

    def saw(self, loss: float, samples: int) -> None:
        """Record the mean loss of a step. The reported loss is the mean over the last epoch, as with SGD."""
        if self._step >= self.steps - min(self.steps, self.method.per_epoch(len(self.data))):
            self._total += loss * samples
            self._seen += samples
        self._step += 1

    def report(
        self,
        wanted: frozenset[str],
        extras: Mapping[str, Tensor] | None = None,
        state: Mapping[str, Mapping[str, Tensor]] | None = None,
    ) -> Report:
        losses = {"train": self._total / self._seen}
        if "after" in wanted:
            losses["after"] = self.site.loss(self.module, self.data)
        parameters, samples = self.site.parameters(), len(self.data)
        return Report(self.draws.client, parameters, losses, self.steps, samples, dict(extras or {}), state or {})

    def _mean(self, batch: Tensor) -> Tensor:
        target = self._here.y[batch]
        loss = self.site.task.loss(self.module(self._here.x[batch]), target)
        return loss if self.site.task.reduction == "mean" else loss / len(target)


def without_momentum(update: sgd) -> None:
    """Raise ValueError if a method that makes its own steps is given momentum, clipping or another precision."""
    for name, absent in (("momentum", 0.0), ("clip", None), ("precision", "full")):
        if (value := getattr(update, name)) != absent:
            raise ValueError(f"{update.text_name}: {name} = {value}; the method has none, leave it out")


def held(found: Mapping[str, Tensor], prefix: str, names: Sequence[str], like: Sequence[Tensor]) -> list[Tensor] | None:
    """The tensors called prefix + name; None if one is missing, or if the model has other shapes now."""
    values = [found.get(prefix + name) for name in names]
    fits = [v.to(p.device) for v, p in zip(values, like, strict=True) if v is not None and v.shape == p.shape]
    return fits if len(fits) == len(values) else None
