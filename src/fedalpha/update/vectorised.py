"""Many small clients at once: SGD over a stack of models, one per client, with ``torch.func``.

For small dense models a step costs more in calls than in arithmetic; here one call serves up to
`WIDTH` clients. The arithmetic per client is that of `sgd` up to rounding. The bytes depend on
the cohort only, not on the number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.nn.functional import cross_entropy, linear
from torch.overrides import TorchFunctionMode

from fedalpha.data.federations import Examples
from fedalpha.models import Parameters
from fedalpha.rng import Draws, generators
from fedalpha.task import Task
from fedalpha.update.base import Broadcast, Report, Site
from fedalpha.update.schedules import Schedule
from fedalpha.update.sgd import sgd

WIDTH = 128
"""Clients per stack: enough that the calls of a step cost little beside its arithmetic."""
LEAST = 256
"""Smaller cohorts are computed client by client."""
MOST_PARAMETERS = 60_000
"""Larger models are computed client by client."""
IGNORED = -100
"""The label that cross-entropy leaves out, as in torch."""
RECORDINGS = 8
"""At most this many shapes of stacks are recorded; federations with unequal sizes may have hundreds."""

_DENSE = (
    nn.Linear, nn.Flatten, nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.LeakyReLU, nn.ELU, nn.Softplus,
    nn.Softmax, nn.LogSoftmax, nn.LayerNorm, nn.Identity, nn.Unflatten, nn.Embedding,
)  # fmt: skip


_VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default, torch.ops.aten.expand.default)


def stackable(module: nn.Module, update: object) -> bool:
    """Whether a model is small and dense, and the client update plain SGD or FedProx.

    Containers are ignored, only the modules inside them count. A model with a buffer, randomness or a
    convolution is not stacked.
    """
    leaves = [m for m in module.modules() if not list(m.children())]
    size = sum(p.numel() for p in module.parameters())
    return (
        isinstance(update, sgd)
        and type(update).update is sgd.update
        and type(update).mover is sgd.mover
        and update.clip is None
        and update.precision == "full"
        and not (isinstance(update.lr, Schedule) and type(update.lr).of is not Schedule.of)
        and all(isinstance(m, _DENSE) for m in leaves)
        and not list(module.buffers())
        and all(p.requires_grad and p.is_floating_point() for p in module.parameters())
        and 0 < size <= MOST_PARAMETERS
    )


@dataclass(frozen=True)
class Stack:
    """The trained models of several clients, stacked along the first axis, and their reports."""

    reports: list[Report]
    parameters: Parameters


def portions(clients: int) -> list[slice]:
    """How a number of clients is cut into stacks.

    >>> portions(300)
    [slice(0, 150, None), slice(150, 300, None)]
    """
    count = max(1, round(clients / WIDTH))
    return [slice(i * clients // count, (i + 1) * clients // count) for i in range(count)]


def update_many(
    update: sgd,
    site: Site,
    broadcast: Broadcast,
    data: Examples,
    parts: Sequence[range],
    draws: Sequence[Draws],
    wanted: frozenset[str],
    widths: frozenset[int] = frozenset(),
) -> Iterator[Stack]:
    """Train the clients whose samples are the given ``parts`` of ``data``, in order.

    ``widths``: the sizes of stacks that this process may train later; their steps are recorded with the first one.
    """
    for some in portions(len(parts)):
        yield _stack(update, site, broadcast, data, parts[some], draws[some], wanted, widths)


def _stack(
    update: sgd,
    site: Site,
    broadcast: Broadcast,
    data: Examples,
    parts: Sequence[range],
    draws: Sequence[Draws],
    wanted: frozenset[str],
    widths: frozenset[int],
) -> Stack:
    module = site.load(broadcast)
    module.train()
    clients = len(parts)
    sizes = [len(part) for part in parts]
    cuts = {n: update.cuts(n) for n in set(sizes)}
    counts = np.array([len(cuts[n]) for n in sizes])
    order = np.argsort(-counts, kind="stable")  # most steps first, so that active clients are a prefix
    streams = generators(draws[0].seed, "batches", draws[0].round, [d.client for d in draws])
    shuffled = [update.order(n, rng) for n, rng in zip(sizes, streams, strict=True)]
    first = [parts[i].start for i in order.tolist()]
    rows = [shuffled[i] for i in order.tolist()]
    even = np.stack(rows) + np.array(first)[:, None] if len(cuts) == 1 else None
    parameters = {name: p.detach().expand(clients, *p.shape).clone() for name, p in module.named_parameters()}
    stacked = list(parameters.values())
    start = [p.clone() for p in stacked] if update.pull else []
    velocity: list[Tensor] = []
    rate = update.rate(draws[0].round)
    losses, seen = np.zeros(clients), np.zeros(clients)
    epoch = {n: update.per_epoch(n) for n in cuts}
    last = counts - np.minimum(counts, [epoch[n] for n in sizes])
    for step in range(int(counts.max())):
        active = int((counts > step).sum())
        who = order[:active]
        if even is not None:
            index, weight = even[:, cuts[sizes[0]][step]], None
            lengths = np.full(clients, index.shape[1])
        else:
            now = [first[j] + rows[j][cuts[sizes[i]][step]] for j, i in enumerate(who.tolist())]
            lengths = np.array([len(batch) for batch in now])
            index, weight = _padded(now, lengths)
        x, y = (_taken(t, index).to(site.device) for t in (data.x, data.y))
        weights = _weights(site, weight, y)
        models = [p[:active] for p in stacked]
        gradients, values = _step(
            site, module, list(parameters), widths if active == clients else frozenset(), models, x, y, *weights
        )
        update.step(models, gradients, rate, velocity, [s[:active] for s in start])
        if velocity:
            velocity = [v[: int((counts > step + 1).sum())] for v in velocity]
        counted = step >= last[who]
        total = values.double().numpy(force=True) * (lengths if site.task.reduction == "mean" else 1)
        losses[who[counted]] += total[counted]
        seen[who[counted]] += lengths[counted]
    if (order != np.arange(clients)).any():
        place = torch.from_numpy(np.argsort(order)).to(site.device)
        parameters = {name: p[place] for name, p in parameters.items()}
    found = [{"train": value} for value in (losses / seen).tolist()]
    if "after" in wanted:
        for i, part in enumerate(parts):
            trained = site.load(Broadcast(broadcast.architecture, {name: p[i] for name, p in parameters.items()}))
            found[i]["after"] = site.loss(trained, data[slice(part.start, part.stop)])
    told = zip(draws, found, counts.tolist(), sizes, strict=True)
    return Stack([Report(draw.client, None, kinds, steps, n) for draw, kinds, steps, n in told], parameters)


def _taken(source: Tensor, index: NDArray[np.int64]) -> Tensor:
    """``source[index]``; one flat copy per sample is faster."""
    flat = source.flatten(1) if source.dim() > 1 else source
    return flat.index_select(0, torch.from_numpy(index).reshape(-1)).view(*index.shape, *source.shape[1:])


def _padded(
    batches: Sequence[NDArray[np.int64]], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float32] | None]:
    """Indices (clients × batch), and 1/0 weights of the samples where the batches differ in length."""
    if (lengths == lengths[0]).all():
        return np.stack(batches), None
    weight = np.arange(lengths.max()) < lengths[:, None]
    index = np.repeat([[b[0]] for b in batches], weight.shape[1], axis=1)
    index[weight] = np.concatenate(batches)
    return index, weight.astype(np.float32)


def _weights(site: Site, weight: NDArray[np.float32] | None, y: Tensor) -> list[Tensor]:
    """The weights of the samples, or an empty list if all are 1; samples that cross-entropy leaves out get 0."""
    found = [] if weight is None else [torch.from_numpy(weight).to(site.device)]
    if site.task.loss is cross_entropy and y.dim() == 2 and bool((left_out := y == IGNORED).any()):
        found = [~left_out * (found[0] if found else 1.0)]
    return found


def _step(
    site: Site, module: nn.Module, names: list[str], widths: frozenset[int], models: list[Tensor], *data: Tensor
) -> Any:
    """(gradients, losses) of a stack of models on a stack of batches, from recorded operations if possible.

    ``torch.func`` takes longer to find the operations of a step than to run them. So they are recorded for the
    first shapes, without duplicates, and replayed later: the same operations give the same bits.
    """
    shapes = tuple(t.shape for t in data)
    if shapes not in site.recordings:
        function = _gradients(module, names, site.task)
        if len(site.recordings) >= RECORDINGS:
            return function(models, *data)
        for width in sorted({len(data[0]), *widths}):
            like = [t[:1].expand(width, *t.shape[1:]).contiguous() for t in (*models, *data)]
            some = like[len(models) :]
            site.recordings[tuple(t.shape for t in some)] = _recorded(function, like[: len(models)], *some)
    with torch.no_grad():
        return site.recordings[shapes](models, *data)


def _recorded(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """The tensor operations of ``function`` for arguments of these shapes, without duplicates."""
    from torch.fx.experimental.proxy_tensor import make_fx

    recording = make_fx(function)(*arguments)
    first: dict[str, Any] = {}
    for node in recording.graph.nodes:
        if _changes_nothing(node):
            node.replace_all_uses_with(node.args[0])
        elif node.op == "call_function" and not node.is_impure():
            same = first.setdefault(f"{node.target} {node.args} {node.kwargs}", node)
            if same is not node:
                node.replace_all_uses_with(same)
    recording.graph.eliminate_dead_code()
    recording.recompile()
    return recording


def _changes_nothing(node: Any) -> bool:
    """Whether an operation returns its first argument with the same shape and strides."""
    if node.target not in _VIEWS:
        return False
    old, new = node.args[0].meta["val"], node.meta["val"]
    return bool(old.shape == new.shape and old.stride() == new.stride())


class _WeightsFirst(TorchFunctionMode):
    """x·Wᵀ as (W·xᵀ)ᵀ: faster for many small matrices, with a better memory layout for a loss over classes."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is not linear or kwargs:
            return function(*args, **(kwargs or {}))
        x, weight, bias = (*args, None)[:3]
        if x.dim() < 2:
            return linear(x, weight, bias)
        product = (weight @ x.mT).mT
        return product if bias is None else product + bias


def _gradients(module: nn.Module, names: list[str], task: Task) -> Callable[..., Any]:
    """(gradients, losses) of a stack of models on a stack of batches, with weights of the samples if they differ."""

    def outputs(parameters: list[Tensor], x: Tensor) -> Tensor:
        with _WeightsFirst():
            return functional_call(module, dict(zip(names, parameters, strict=True)), (x,))  # type: ignore[no-any-return]

    def losses(output: Tensor, y: Tensor, *weight: Tensor) -> Tensor:
        """One loss per client, which depends on that client's output only."""
        if task.loss is cross_entropy and y.dim() == 2 and output.dim() == 3:
            each = cross_entropy(output.mT, y, reduction="none")
        elif weight:
            each = vmap(vmap(lambda o, t: task.loss(o[None], t[None])))(output, y)
        else:
            return vmap(task.loss)(output, y)
        if not weight:
            return each.mean(1) if task.reduction == "mean" else each.sum(1)
        found = (each * weight[0]).sum(1)
        return found / weight[0].sum(1) if task.reduction == "mean" else found

    def backward(parameters: list[Tensor], x: Tensor, slope: Tensor) -> list[Tensor]:
        return vjp(lambda p: outputs(p, x), parameters)[1](slope)[0]  # type: ignore[no-any-return]

    def both(parameters: list[Tensor], x: Tensor, *rest: Tensor) -> tuple[list[Tensor], Tensor]:
        found, pull = vjp(lambda output: losses(output, *rest), vmap(outputs)(parameters, x))[:2]
        (slope,) = pull(torch.ones_like(found))
        return vmap(backward)(parameters, x, slope), found

    return both
