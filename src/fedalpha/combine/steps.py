"""Steps before another rule: norm clipping, and mixing with the nearest neighbours."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedalpha.combine.base import COMBINES, Reports
from fedalpha.combine.robust import Wrapper, check_simplex, distances, gram, slices
from fedalpha.strategies import Array
from fedalpha.update import Broadcast


@COMBINES.register(
    formula="x_i·min(1, C/‖x_i‖) with x_i = w_i − w_t, then the rule",
    reference="with attackers of weight B the mean moves by at most 2·B·C",
    examples=("clip(mean, C=1.0)", "clip(trimmed(beta=0.2), C=1.0)"),
)
@dataclass(frozen=True, eq=False, repr=False)
class clip(Wrapper):  # noqa: N801 - written in lower case
    """No client moves the model by more than C (Euclidean norm over all floating tensors)."""

    C: float = field(default=1.0, metadata={"always": True})

    text_name: ClassVar[str] = "clip"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.C < math.inf:
            raise ValueError(f"clip: C = {self.C!r}; give the largest norm of an update, a number > 0")

    def before(self, broadcast: Broadcast, reports: Reports, alpha: Array, simplex: bool) -> Reports:
        return Reports(
            [dataclasses.replace(r, parameters=self._clipped(r.parameters, broadcast)) for r in reports.items]
        )

    def _clipped(self, parameters: dict[str, Tensor] | None, broadcast: Broadcast) -> dict[str, Tensor]:
        if parameters is None:
            raise ValueError("clip needs every client's model, and these were summed on the way")
        sent = broadcast.parameters
        moves = {k: v.double() - sent[k].double() for k, v in parameters.items() if v.is_floating_point()}
        norm = math.sqrt(math.fsum(float((m * m).sum()) for m in moves.values()))
        if norm <= self.C:
            return parameters
        # Rounding to the model's dtype may not push the norm over C again: aim a little below.
        share = self.C / norm * (1 - 1e-6)
        return {
            k: (sent[k].double() + share * moves[k]).to(v.dtype) if k in moves else v for k, v in parameters.items()
        }


@COMBINES.register(
    formula="each w_i becomes the alpha-weighted mean of its n − f nearest, then the rule",
    reference="Allouah et al., 2023, 2302.01772",
    examples=("nnm(trimmed(beta=0.2), f=2)", "clip(nnm(geomed, f=1), C=1.0)"),
)
@dataclass(frozen=True, eq=False, repr=False)
class nnm(Wrapper):  # noqa: N801
    """Nearest-neighbour mixing: heterogeneous honest updates move together, so that a robust rule fits them."""

    f: int = field(default=1, metadata={"always": True})

    text_name: ClassVar[str] = "nnm"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.f < 0:
            raise ValueError(f"nnm: f = {self.f!r}; give the number of attackers, ≥ 0")

    def before(self, broadcast: Broadcast, reports: Reports, alpha: Array, simplex: bool) -> Reports:
        check_simplex(self, simplex)
        mix = torch.from_numpy(self.mixing(distances(gram(broadcast, reports)), alpha))
        models = [
            {k: torch.empty(v.shape, dtype=v.dtype) if v.is_floating_point() else v for k, v in m.items()}
            for m in reports.models()
        ]
        for name, part, values in slices(reports):
            if values.is_floating_point():
                for model, mixed in zip(models, (mix @ values.double()).to(values.dtype), strict=True):
                    model[name].view(-1)[part] = mixed
        return Reports([dataclasses.replace(r, parameters=m) for r, m in zip(reports.items, models, strict=True)])

    def mixing(self, squares: Array, alpha: Array) -> Array:
        """Row i: the weights with which client i's neighbours enter."""
        n = len(alpha)
        nearest = np.argsort(squares, axis=1, kind="stable")[:, : max(1, n - self.f)]
        mix = np.zeros((n, n))
        np.put_along_axis(mix, nearest, alpha[nearest], axis=1)
        mixed: Array = mix / mix.sum(axis=1, keepdims=True)
        return mixed
