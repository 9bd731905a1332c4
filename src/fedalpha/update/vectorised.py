"""Many small clients at once: SGD over a stack of models, one per client, with ``torch.func``.

For small dense models a step costs more in calls than in arithmetic; here one call serves up to
`WIDTH` clients. The arithmetic per client is that of `sgd` up to rounding; bytes depend on the
cohort alone, never on the number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from fedalpha.data.federations import Examples
from fedalpha.rng import Draws
from fedalpha.task import Task
from fedalpha.update.base import Broadcast, Report, Site
from fedalpha.update.sgd import sgd

WIDTH = 32
"""Clients per stack: their models should stay in the processor's cache."""
LEAST = 8
"""Fewer clients than this are computed one by one."""
MOST_PARAMETERS = 60_000

_DENSE = (
    nn.Linear, nn.Flatten, nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.LeakyReLU, nn.ELU, nn.Softplus,
    nn.Softmax, nn.LogSoftmax, nn.LayerNorm, nn.Identity, nn.Unflatten,
)  # fmt: skip


def stackable(module: nn.Module, update: object) -> bool:
    """Whether a model is small and dense, and the client update plain SGD or FedProx.

    Containers (modules without parameters of their own) are looked through; anything with a buffer,
    randomness or a convolution is not stacked.
    """
    leaves = [m for m in module.modules() if not list(m.children())]
    size = sum(p.numel() for p in module.parameters())
    return (
        isinstance(update, sgd)
        and type(update).update is sgd.update
        and all(isinstance(m, _DENSE) for m in leaves)
        and not list(module.buffers())
        and all(p.requires_grad and p.is_floating_point() for p in module.parameters())
        and 0 < size <= MOST_PARAMETERS
    )


def update_many(
    update: sgd,
    site: Site,
    broadcast: Broadcast,
    data: Sequence[Examples],
    draws: Sequence[Draws],
    wanted: frozenset[str],
) -> Iterator[Report]:
    """The reports of several clients, in order."""
    for start in range(0, len(data), WIDTH):
        part = slice(start, start + WIDTH)
        yield from _stack(update, site, broadcast, data[part], draws[part], wanted)


def _stack(
    update: sgd,
    site: Site,
    broadcast: Broadcast,
    data: Sequence[Examples],
    draws: Sequence[Draws],
    wanted: frozenset[str],
) -> list[Report]:
    module = site.load(broadcast)
    module.train()
    clients = len(data)
    sizes = np.array([len(d) for d in data])
    counts = np.array([update.count(int(n)) for n in sizes])
    order = np.argsort(-counts, kind="stable")  # those with the most steps first: the active ones are a prefix
    pooled = site.place(Examples(torch.cat([d.x for d in data]), torch.cat([d.y for d in data])))
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    batches = [[b + int(first[i]) for b in update.batches(int(sizes[i]), draws[i]("batches"))] for i in order.tolist()]
    names = [name for name, _ in module.named_parameters()]
    stacked = [p.detach().expand(clients, *p.shape).clone() for p in module.parameters()]
    start = [p.clone() for p in stacked] if update.pull else []
    velocity: list[Tensor] = []
    rate = update.rate(draws[0].round)
    losses, seen = np.zeros(clients), np.zeros(clients)
    last = counts - np.minimum(counts, [update.per_epoch(int(n)) for n in sizes])
    for step in range(int(counts.max())):
        active = int((counts > step).sum())
        now = [batches[j][step] for j in range(active)]
        index, weight = _padded(now)
        x, y = pooled.x[index], pooled.y[index]
        gradients, values = _gradients(module, names, site.task, weight is None)(
            [p[:active] for p in stacked], x, y, *([] if weight is None else [weight.to(site.device)])
        )
        update.step([p[:active] for p in stacked], gradients, rate, velocity, [s[:active] for s in start])
        if velocity:
            velocity = [v[: int((counts > step + 1).sum())] for v in velocity]
        lengths = np.array([len(b) for b in now])
        who = order[:active]
        counted = step >= last[who]
        per_sample = np.array(
            [site.task.per_sample(v, n) for v, n in zip(values.tolist(), lengths.tolist(), strict=True)]
        )
        losses[who[counted]] += (per_sample * lengths)[counted]
        seen[who[counted]] += lengths[counted]
    place = np.empty(clients, dtype=int)
    place[order] = np.arange(clients)
    reports = []
    for i in range(clients):
        parameters = {name: p[int(place[i])] for name, p in zip(names, stacked, strict=True)}
        found = {"train": float(losses[i] / seen[i])}
        if "after" in wanted:
            trained = site.load(Broadcast(broadcast.architecture, parameters))
            found["after"] = site.loss(trained, data[i])
        reports.append(Report(draws[i].client, parameters, found, int(counts[i]), int(sizes[i])))
    return reports


def _padded(batches: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
    """Indices (clients × batch), and 1/0 weights of the samples where the batches differ in length."""
    lengths = {len(b) for b in batches}
    if len(lengths) == 1:
        return torch.stack(list(batches)), None
    index = nn.utils.rnn.pad_sequence(list(batches), batch_first=True)
    weight = nn.utils.rnn.pad_sequence([torch.ones(len(b)) for b in batches], batch_first=True)
    return index, weight


def _gradients(module: nn.Module, names: list[str], task: Task, even: bool) -> Callable[..., Any]:
    """(gradients, losses) of a stack of models on a stack of batches."""

    def loss(parameters: list[Tensor], x: Tensor, y: Tensor) -> Tensor:
        return task.loss(functional_call(module, dict(zip(names, parameters, strict=True)), (x,)), y)

    def weighted(parameters: list[Tensor], x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        output = functional_call(module, dict(zip(names, parameters, strict=True)), (x,))
        each = vmap(lambda o, t: task.loss(o.unsqueeze(0), t.unsqueeze(0)))(output, y)
        total = (each * weight).sum()
        return total if task.reduction == "sum" else total / weight.sum()

    return vmap(grad_and_value(loss if even else weighted))
