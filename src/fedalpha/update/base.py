"""The interface of client updates, and what travels between server and client."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fedalpha.data.federations import Examples
from fedalpha.data.transforms import Change
from fedalpha.fast.layers import quicken
from fedalpha.models import Architecture, Parameters
from fedalpha.rng import Draws
from fedalpha.select.base import Population
from fedalpha.strategies.plug_point import PlugPoint
from fedalpha.task import Task
from fedalpha.text import Registry, Spelled
from fedalpha.update.schedules import SCHEDULES

CHUNK = 256
"""Samples per forward pass when a loss or an accuracy is measured; fixed, so that the bytes are always the same."""


@dataclass(frozen=True, eq=False)
class Broadcast:
    """What the server sends: an architecture, its parameters, and extras (control variates …)."""

    architecture: Architecture
    parameters: Parameters
    extras: Parameters = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for t in (*self.parameters.values(), *self.extras.values()))

    def beyond(self, current: Broadcast, bound: float) -> str | None:
        """Where this model is not finite, or ``bound`` times larger than the current one; None if nowhere."""
        for name, value in self.parameters.items():
            if value.is_floating_point() and value.numel():
                old = current.parameters.get(name, value.new_zeros(0))
                limit = bound * max(1.0, largest(old))
                found = largest(value)
                if not found <= limit:  # also where it is NaN
                    return f"{name!r} holds {found:g}; at most {limit:g} is accepted (bound={bound:g})"
        return None


def largest(value: Tensor) -> float:
    """The largest absolute value, 0 without any; NaN if there is one. Makes no copy, as ``value.abs()`` would.

    >>> largest(torch.tensor([1.0, -3.0]))
    3.0
    """
    if not value.numel():
        return 0.0
    low, high = torch.aminmax(value.detach())
    return max(-float(low), float(high))


@dataclass(frozen=True, eq=False)
class Report:
    """What a client sends back.

    ``losses`` holds ``train`` and, if asked for, ``after``. ``state`` is the client's next state, which is
    saved with the round. ``parameters`` is None if only a sum over several clients is sent. ``origin`` is the
    (run, round) for which the report was made, None for the current one. ``delay`` is the number of seconds that the
    report took.
    """

    id: int
    parameters: Parameters | None
    losses: Mapping[str, float]
    steps: int
    samples: int
    extras: Parameters = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    origin: tuple[int, int] | None = None
    delay: float = 0.0
    labels: Sequence[int] | None = None
    """How many samples of each class the client has, if asked for."""
    uploaded: int | None = None
    """The bytes in which its model was sent; None for those of the model."""

    def misfit(self, broadcast: Broadcast) -> str | None:
        """How the model differs in form from the broadcast model, or where it is not finite; None if it is sound."""
        if self.parameters is None:
            return "its model is missing"
        return misfit(self.parameters, broadcast.parameters) or not_finite("extra", self.extras)

    def same(self, other: Report) -> bool:
        """Whether another report has the same losses and the same model."""
        assert self.parameters is not None
        assert other.parameters is not None
        theirs = other.parameters
        return self.losses == other.losses and all(torch.equal(v, theirs[k]) for k, v in self.parameters.items())

    def unchanged(self, broadcast: Broadcast) -> bool:
        """Whether the model is the broadcast model."""
        assert self.parameters is not None
        return all(torch.equal(v, broadcast.parameters[k]) for k, v in self.parameters.items())


def misfit(parameters: Parameters, sent: Parameters) -> str | None:
    """How a model differs in form from the one that was sent, or where it is not finite; None if it is sound.

    >>> misfit({"w": torch.zeros(1)}, {"w": torch.zeros(3)})
    "tensor 'w' has shape (1,) instead of (3,)"
    """
    if missing := sent.keys() - parameters.keys():
        return f"tensor {min(missing)!r} is missing"
    if more := parameters.keys() - sent.keys():
        return f"tensor {min(more)!r} is not part of the model"
    for name, old in sent.items():
        new = parameters[name]
        if new.shape != old.shape:
            return f"tensor {name!r} has shape {tuple(new.shape)} instead of {tuple(old.shape)}"
        if new.dtype != old.dtype:
            return f"tensor {name!r} is {new.dtype} instead of {old.dtype}"
    return not_finite("tensor", parameters)


def not_finite(kind: str, tensors: Parameters) -> str | None:
    """The first tensor that is not finite, in words; None if all are finite."""
    for name, value in tensors.items():
        if value.is_floating_point() and not math.isfinite(largest(value)):
            return f"{kind} {name!r} is not finite"
    return None


def class_counts(data: Examples, classes: int = 0) -> list[int]:
    """How many samples of each class there are.

    >>> class_counts(Examples(torch.zeros(3, 2), torch.tensor([0, 2, 2])), 4)
    [1, 0, 2, 0]
    """
    if data.y.is_floating_point() or data.y.dim() != 1 or bool((data.y < 0).any()):
        raise ValueError("class counts need one label 0, 1, 2 … per sample; this task has other targets")
    return [int(count) for count in torch.bincount(data.y.long(), minlength=classes).tolist()]


class Site:
    """A place where clients are computed: a module that is reused for all clients, a task and a device."""

    def __init__(self, task: Task, device: str | torch.device = "cpu") -> None:
        self.task = task
        self.device = torch.device(device)
        self._architecture: Architecture | None = None
        self._module: nn.Module
        self._live: Parameters
        self._images = False
        self.transform: Change | None = None
        """How the samples that clients train on are changed at random."""
        self.recordings: dict[Any, Any] = {}
        """What `vectorised` has recorded for the loaded architecture."""

    def load(self, broadcast: Broadcast) -> nn.Module:
        """The module with the broadcast parameters; the next `load` overwrites it."""
        if self._architecture is not broadcast.architecture:
            self._architecture = broadcast.architecture
            self.recordings.clear()
            with torch.random.fork_rng(devices=[]):  # building a module draws parameters that are overwritten
                self._module = broadcast.architecture.build().to(self.device)
            self._images = any(isinstance(m, nn.Conv2d) for m in self._module.modules())
            if self._images:  # convolutions, and what follows them, run twice as fast in this layout
                self._module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
                quicken(self._module)
            self._live = self._module.state_dict()
        for name, value in broadcast.parameters.items():
            self._live[name].copy_(value)
        return self._module

    def parameters(self) -> Parameters:
        """The loaded module's parameters as they are now (not a copy)."""
        return self._live

    def trained(self, broadcast: Broadcast) -> frozenset[str]:
        """The names of the trained parameters of this architecture, which is loaded if it is not."""
        if self._architecture is not broadcast.architecture:
            self.load(broadcast)
        return frozenset(name for name, _ in self._module.named_parameters())

    def place(self, data: Examples) -> Examples:
        """The data on this site's device, in the layout that suits the loaded module."""
        x = data.x.to(self.device)
        if self._images and x.dim() == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        return Examples(x, data.y.to(self.device))

    def changes(self, draws: Draws) -> Callable[[Tensor], Tensor]:
        """What happens to each batch of placed samples that a client trains on: the transform, if there is one."""
        if (transform := self.transform) is None:
            return lambda x: x
        rng = draws("transform")

        def change(x: Tensor) -> Tensor:
            x = transform(x, rng)
            return x.contiguous(memory_format=torch.channels_last) if self._images and x.dim() == 4 else x

        return change

    def outputs(self, module: nn.Module, data: Examples) -> Iterator[tuple[Tensor, Tensor]]:
        """(output, target) of each chunk, without gradients and in evaluation mode."""
        module.eval()
        with torch.no_grad():
            for start in range(0, len(data), CHUNK):
                part = self.place(data[slice(start, start + CHUNK)])
                yield module(part.x), part.y

    def loss(self, module: nn.Module, data: Examples) -> float:
        """The mean loss per sample."""
        return self._mean(self.outputs(module, data))

    def each_loss(self, module: nn.Module, data: Sequence[Examples]) -> list[float]:
        """The mean loss per sample of each client; small clients share a forward pass."""
        found: list[float] = []
        module.eval()
        with torch.no_grad():
            for group in _grouped(data):
                if len(group) == 1:
                    found.append(self.loss(module, group[0]))
                    continue
                pooled = self.place(Examples(torch.cat([d.x for d in group]), torch.cat([d.y for d in group])))
                sizes = [len(d) for d in group]
                pairs = zip(torch.split(module(pooled.x), sizes), torch.split(pooled.y, sizes), strict=True)
                found += [self._mean([pair]) for pair in pairs]
        return found

    def _mean(self, outputs: Iterable[tuple[Tensor, Tensor]]) -> float:
        total, count = 0.0, 0
        for output, target in outputs:
            total += self.task.per_sample(float(self.task.loss(output, target)), len(target)) * len(target)
            count += len(target)
        return total / count


def _grouped(data: Sequence[Examples]) -> Iterator[list[Examples]]:
    """Groups of neighbouring clients that fit into one chunk; a client that fills a chunk is alone."""
    group: list[Examples] = []
    for one in data:
        if group and sum(len(d) for d in group) + len(one) > CHUNK:
            yield group
            group = []
        group.append(one)
    if group:
        yield group


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Within this context torch's own draws (dropout …) come from ``seed``; its generators are restored afterwards."""
    gpu = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if gpu else []):
        # torch.manual_seed also seeds devices that do not exist, which takes milliseconds.
        (torch if gpu else torch.default_generator).manual_seed(seed)
        yield


class Update(Spelled, PlugPoint, ABC):
    """The *client update* plug point. ``wanted`` names the losses besides ``train`` that are needed."""

    sends: ClassVar[tuple[str, ...]] = ()
    """The prefixes of the extras in a report, each followed by the name of a trained parameter."""

    @abstractmethod
    def update(
        self,
        site: Site,
        broadcast: Broadcast,
        data: Examples,
        state: Mapping[str, Any],
        draws: Draws,
        wanted: frozenset[str] = frozenset(),
    ) -> Report:
        """Train one client; ``state`` is empty in its first round. Pure."""

    def pulled(self, round: int) -> float:
        """η·μ: how strongly each local step of a round is pulled back to the received model (FedProx)."""
        return 0.0

    def suits(self, clients: int) -> None:
        """Raise ValueError if the update cannot be used with clients 0 … ``clients`` − 1."""

    def absorb(self, broadcast: Broadcast, reports: Sequence[Report], population: Population) -> Parameters:
        """The extras of the next broadcast, from what the clients reported (control variates …). Pure."""
        return broadcast.extras


UPDATES: Registry[Update] = Registry("client update", Update, (SCHEDULES,), package=__package__)  # type: ignore[type-abstract]
