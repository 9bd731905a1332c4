"""The interface of combine rules."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from fedalpha.combine.moved import Moved
from fedalpha.combine.sums import Alone, Sum, add_product, array, weighted_sum
from fedalpha.fast.gram import gram, norms
from fedalpha.models import Parameters
from fedalpha.strategies import Array, State
from fedalpha.strategies.cohort import cosines
from fedalpha.strategies.plug_point import PlugPoint
from fedalpha.text import Registry, Spelled
from fedalpha.update import Broadcast, Report
from fedalpha.update.base import not_finite


@dataclass(frozen=True, eq=False)
class Reports:
    """The reports of a round, sorted by client id; ``total`` is Σ alpha_i·w_i if the engine has summed the models.

    It is the sum of the models after the combine rule's own step, such as clipping (`Combine.alone`).

    ``final``: the models were checked one by one as they were added, and the clients cannot be asked again.
    """

    items: Sequence[Report]
    total: Sum | None = None
    final: bool = False
    moved: Moved | None = None
    """A linear step that is applied to the models when they are read, without copies."""
    known: dict[str, Array] = field(default_factory=dict, repr=False)
    """Products of the models before that step, kept so that later rules need not compute them again."""
    problems: Mapping[int, str] = field(default_factory=dict)
    """For each client without a usable report, the reason, if the driver that collected the reports knows it."""
    uploaded: int | None = None
    """The bytes that arrived, if they are not one model per client."""

    @cached_property
    def ids(self) -> NDArray[np.int64]:
        return np.array([r.id for r in self.items], dtype=np.int64)

    @property
    def summed(self) -> bool:
        """Whether the reports have a sum over the clients instead of their models."""
        return self.total is not None

    def only(self, items: Sequence[Report]) -> Reports:
        """A copy with these reports only."""
        return Reports(items)

    def rebased(self, sent: Mapping[int, Broadcast], current: Broadcast) -> Reports:
        """A copy in which the models of stale updates are w_t + (w_i − what client i was sent), in float64.

        Integer buffers stay as they are. Clients that are not in ``sent`` were sent the current model.
        """
        items = [
            dataclasses.replace(r, parameters=_rebased(r.parameters, sent[r.id].parameters, current.parameters))
            if r.id in sent and r.parameters is not None
            else r
            for r in self.items
        ]
        return self.only(items)

    @classmethod
    def of_sum(cls, items: Sequence[Report], total: Sum | None, broadcast: Broadcast, final: bool = False) -> Reports:
        """The reports of clients whose models were added as they arrived; ``total`` is None if they were collected.

        The part of the weight that single updates lose by scaling stays with the current model.
        """
        if total is not None and total.alone:
            alpha, used = zip(*total.alone, strict=True)
            if rest := math.fsum(alpha) - math.fsum(used):
                for name, old in broadcast.parameters.items():
                    if old.is_floating_point():
                        add_product(total.values[name], rest, old)
        return cls(items, total, final=final)

    def finite(self, broadcast: Broadcast) -> bool:
        """Whether the sum has the form of the model, and the sum and the extras are finite."""
        assert self.total is not None
        found, sent = self.total.values, broadcast.parameters
        if found.keys() != sent.keys() or any(found[k].shape != sent[k].shape for k in sent):
            return False
        extras = all(not_finite("extra", r.extras) is None for r in self.items)
        return extras and not_finite("tensor", found) is None

    def divided(self, mass: float) -> Reports:
        """A copy with the sum divided by ``mass``; integer buffers do not change."""
        assert self.total is not None
        values = self.total.values
        total = Sum({k: v / mass if v.is_floating_point() else v for k, v in values.items()}, self.total.heaviest)
        return dataclasses.replace(self, total=total)

    def total_of(self, ids: NDArray[np.int64], alpha: Array, alone: Alone | None, broadcast: Broadcast) -> Reports:
        """A copy with the sum over the clients of an order (``ids``), in whose blocks lost clients are left out."""
        if self.total is not None:
            return self
        place = {id: place for place, id in enumerate(self.ids.tolist())}
        here = [place.get(id, 0) for id in ids.tolist()]  # the first stands for lost clients, which weigh 0
        whole = Reports([self.items[i] for i in here])
        if alone is not None:
            whole = whole.move(broadcast, alone(self.norms(broadcast))[here])
        left = np.where(np.isin(ids, self.ids), alpha, 0.0)
        return dataclasses.replace(self, total=Sum(whole.weighted_sum(left), float(left.max())))

    def gram(self, broadcast: Broadcast) -> Array:
        """The matrix ⟨w_i − w_t, w_j − w_t⟩ over all floating tensors."""
        if "gram" not in self.known:
            self.known["gram"] = gram(*self._arrays(broadcast))
        return self.known["gram"] if self.moved is None else self.moved.gram(self.known["gram"])

    def norms(self, broadcast: Broadcast) -> Array:
        """‖w_i − w_t‖ over all floating tensors."""
        if self.moved is not None and self.moved.by.ndim == 2:
            return np.sqrt(np.maximum(np.diagonal(self.gram(broadcast)), 0.0))
        if "norms" not in self.known:
            self.known["norms"] = norms(*self._arrays(broadcast))
        return self.known["norms"] if self.moved is None else self.known["norms"] * self.moved.by

    def move(self, broadcast: Broadcast, by: Array) -> Reports:
        """A copy in which the i-th update is by_i·x_i, or Σ_j by_ij·x_j."""
        moved = Moved(broadcast.parameters, by) if self.moved is None else self.moved.then(by)
        return dataclasses.replace(self, moved=moved)

    def cosines(self, broadcast: Broadcast) -> Array:
        """The cosine between each client's model and the broadcast model, over all floating tensors."""
        floats = [(name, old) for name, old in broadcast.parameters.items() if old.is_floating_point()]
        models = self.models()
        return cosines((old.numpy(), [m[name].numpy() for m in models]) for name, old in floats)

    def nbytes(self, broadcast: Broadcast) -> int:
        """The bytes that the clients uploaded: their models as they were sent, extras, and class counts of 8 bytes."""
        if self.uploaded is not None:
            return self.uploaded
        model = sum(t.nbytes for t in broadcast.parameters.values())
        models = sum(model if r.uploaded is None else r.uploaded for r in self.items)
        counts = sum(8 * len(r.labels) for r in self.items if r.labels is not None)
        return models + sum(t.nbytes for r in self.items for t in r.extras.values()) + counts

    def models(self) -> list[Parameters]:
        """Every client's parameters; copies, if a step was applied. Raises ValueError if there is only their sum.

        A rule that needs only a few coordinates at a time uses `reader` instead.
        """
        found = self._originals()
        if self.moved is None:
            return found
        copies: list[Parameters] = [{} for _ in found]
        for name, old in self.moved.base.items():
            tile = self.reader(name)(slice(0, old.numel())) if old.is_floating_point() else None
            for i, copy in enumerate(copies):
                copy[name] = found[i][name] if tile is None else torch.from_numpy(tile[i]).to(old.dtype).view(old.shape)
        return copies

    def rows(self, name: str) -> list[NDArray[Any]] | None:
        """A tensor of every client as flat arrays that share their memory.

        None if the models go through a step, or if NumPy lacks the dtype or is slow with it. Such
        coordinates are read with `reader`.
        """
        models = self._originals()
        if self.moved is not None or models[0][name].dtype in (torch.bfloat16, torch.float16):
            return None
        return [m[name].detach().reshape(-1).numpy() for m in models]

    def reader(self, name: str) -> Callable[[slice], NDArray[Any]]:
        """A function that returns some coordinates of a tensor, a row per client; 16-bit floats as float32."""
        tensors = [m[name].detach().reshape(-1) for m in self._originals()]
        old = tensors[0]
        narrow = old.dtype in (torch.bfloat16, torch.float16)
        rows = None if narrow else [t.numpy() for t in tensors]

        def read(part: slice) -> NDArray[Any]:
            if rows is None:
                values: NDArray[Any] = np.stack([t[part].float().numpy() for t in tensors])
            else:
                values = np.stack([row[part] for row in rows])
            if self.moved is None or not old.is_floating_point():
                return values
            found = self.moved.tile(values, array(self.moved.base[name].reshape(-1)[part]))
            return torch.from_numpy(found).to(old.dtype).float().numpy() if narrow else found

        return read

    def weighted_sum(self, alpha: Array) -> Parameters:
        """Σ alpha_i·w_i: floats in float64, integer buffers from the heaviest client."""
        if self.total is not None:
            return self.total.values
        if self.moved is None:
            return weighted_sum(alpha, self._originals()).values
        coefficients, rest = self.moved.coefficients(alpha)
        total = weighted_sum(coefficients, self._originals()).values
        heaviest = self._originals()[int(np.argmax(alpha))]
        for name, old in self.moved.base.items():
            if not old.is_floating_point():
                total[name] = heaviest[name]
            elif name not in total:  # every coefficient is 0
                total[name] = rest * old.double()
            elif rest:
                add_product(total[name], rest, old)
        return total

    def _originals(self) -> list[Parameters]:
        found = [r.parameters for r in self.items if r.parameters is not None]
        if len(found) != len(self.items):
            raise ValueError("these reports hold only a sum; a rule that needs every model must not be linear")
        return found

    def _arrays(self, broadcast: Broadcast) -> tuple[list[dict[str, NDArray[Any]]], dict[str, NDArray[Any]]]:
        models = [{k: array(v) for k, v in model.items()} for model in self._originals()]
        return models, {k: array(v) for k, v in broadcast.parameters.items()}


def _rebased(model: Parameters, sent: Parameters, current: Parameters) -> Parameters:
    """w_t + (w_i − w_{t−τ}), tensor by tensor."""
    return {
        name: (current[name].double() + (value.double() - sent[name].double())).to(value.dtype)
        if value.is_floating_point()
        else value
        for name, value in model.items()
    }


@dataclass(frozen=True)
class Limit:
    """The attackers that a combine rule tolerates: their total weight is below ``mass``, their number ≤ ``attackers``.

    By default it tolerates none: one client can move the aggregate anywhere.
    """

    mass: float = 0.0
    inclusive: bool = False
    """Whether a total weight of exactly ``mass`` is also tolerated."""
    attackers: float = math.inf


class Combine(Spelled, PlugPoint, ABC):
    """The *combine* plug point."""

    @property
    def linear(self) -> bool:
        """Whether the rule needs only Σ alpha_i·w_i, after what it does to one update `alone`.

        Engines and live federations then sum models as they arrive, if alpha is known before training.
        """
        return False

    @property
    def alone(self) -> Alone | None:
        """The factor by which a linear rule multiplies one update before adding it; None if it does not."""
        return None

    keeps_lost_weight: ClassVar[bool] = False
    """Whether the weight of a lost client stays with the current model, instead of being divided among the others."""

    def weights(self, alpha: Array) -> Array:
        """The weights with which a linear rule sums the models, each from alpha_i alone."""
        return alpha

    def init(self) -> State:
        return {}

    @abstractmethod
    def combine(
        self, state: State, broadcast: Broadcast, reports: Reports, alpha: Array, simplex: bool
    ) -> tuple[Broadcast, State]:
        """The aggregate, as a broadcast that *apply* may install.

        ``alpha`` is aligned with ``reports``. Off the simplex alpha are coefficients of
        w_t + Σ alpha_i (w_i − w_t). Pure.
        """

    def learn(self, broadcast: Broadcast, reports: Reports, alpha: Array, server: Any) -> Array:
        """Coefficients of the reports, learnt on the data of ``server`` (a federation); for rules that want it."""
        raise NotImplementedError(f"{self} learns nothing on the server's data")

    def breakdown(self, support: int) -> Limit:
        """The attackers that the rule tolerates if ``support`` clients weigh more than 0."""
        return Limit()

    @property
    def clipped_to(self) -> float | None:
        """The norm to which updates are clipped before they are averaged; None if they are not."""
        return None


COMBINES: Registry[Combine] = Registry("combine rule", Combine, package=__package__)  # type: ignore[type-abstract]
