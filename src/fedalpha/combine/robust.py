"""The base of robust rules: distances between the updates x_i = w_i − w_t, and the aggregate."""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedalpha.combine.base import COMBINES, Combine, Limit, Reports
from fedalpha.combine.sums import add_product
from fedalpha.fast.columns import SLACK, between
from fedalpha.fast.gram import COLUMNS, VALUES, one_blas_thread
from fedalpha.fast.threads import in_parts
from fedalpha.strategies import Array, State
from fedalpha.strategies.plug_point import AnyAlgorithm
from fedalpha.update import Broadcast


class Robust(Combine):
    """A rule for weights on the simplex that looks at every model. Clients with alpha = 0 are ignored."""

    def combine(
        self, state: State, broadcast: Broadcast, reports: Reports, alpha: Array, simplex: bool
    ) -> tuple[Broadcast, State]:
        check_simplex(self, simplex)
        reports, alpha = supported(reports, alpha)
        return dataclasses.replace(broadcast, parameters=self.aggregate(broadcast, reports, alpha)), state

    @abstractmethod
    def aggregate(self, broadcast: Broadcast, reports: Reports, alpha: Array) -> dict[str, Tensor]:
        """The parameters; alpha > 0 and sums to 1."""


class Wrapper(Combine):
    """A step around another rule: it changes the reports before the rule, or the aggregate after it."""

    rule: Combine | str = field(metadata={"positional": True})

    def __post_init__(self) -> None:
        object.__setattr__(self, "rule", COMBINES.parse(self.rule))

    @property
    def inner(self) -> Combine:
        assert isinstance(self.rule, Combine)
        return self.rule

    @property
    def wants(self) -> frozenset[str]:
        return self.inner.wants

    @property
    def against_stale(self) -> str:
        return self.inner.against_stale

    @property
    def against_absence(self) -> str:
        return self.inner.against_absence

    def check(self, algorithm: AnyAlgorithm) -> None:
        self.inner.check(algorithm)

    def breakdown(self, support: int) -> Limit:
        return self.inner.breakdown(support)

    @property
    def clipped_to(self) -> float | None:
        return self.inner.clipped_to

    def init(self) -> State:
        return {"inner": self.inner.init()}

    def combine(
        self, state: State, broadcast: Broadcast, reports: Reports, alpha: Array, simplex: bool
    ) -> tuple[Broadcast, State]:
        reports, alpha = supported(reports, alpha)
        changed = self.before(broadcast, reports, alpha, simplex)
        aggregate, inner = self.inner.combine(state["inner"], broadcast, changed, alpha, simplex)
        return aggregate, {**state, "inner": inner}

    def before(self, broadcast: Broadcast, reports: Reports, alpha: Array, simplex: bool) -> Reports:
        """The reports for the inner rule."""
        return reports


def check_simplex(rule: Combine, simplex: bool) -> None:
    if not simplex:
        raise ValueError(f"{rule} needs weights on the simplex, but this strategy gives coefficients; use combine=mean")


def supported(reports: Reports, alpha: Array) -> tuple[Reports, Array]:
    """The reports and weights of the clients with alpha ≠ 0."""
    if (alpha != 0).all():
        return reports, alpha
    counts = alpha != 0
    models = reports.models() if reports.moved is not None else [r.parameters for r in reports.items]
    items = [dataclasses.replace(reports.items[i], parameters=models[i]) for i in np.flatnonzero(counts).tolist()]
    return Reports(items), alpha[counts]


def distances(products: Array) -> Array:
    """‖x_i − x_j‖² from the Gram matrix."""
    squares = np.diagonal(products)
    found: Array = squares[:, None] + squares
    for row, inner in zip(found, products, strict=True):  # in a large cohort a matrix is as large as some models
        row -= 2 * inner
    np.maximum(found, 0.0, out=found)
    np.fill_diagonal(found, 0.0)
    return found


def combination(broadcast: Broadcast, reports: Reports, coefficients: Array, alpha: Array) -> dict[str, Tensor]:
    """w_t + Σ c_i·(w_i − w_t), in float64; integer buffers by weighted median. Clients with c_i = 0 are not read."""
    total = reports.weighted_sum(coefficients)
    rest = 1 - math.fsum(coefficients.tolist())
    result = _integers(broadcast, reports, alpha)
    for name, old in broadcast.parameters.items():
        if old.is_floating_point():
            value = total.pop(name) if name in total else torch.zeros(old.shape, dtype=torch.float64)
            if rest:
                add_product(value, rest, old)
            result[name] = value.to(old.dtype)
    return {name: result[name] for name in broadcast.parameters}


def coordinatewise(broadcast: Broadcast, reports: Reports, alpha: Array, low: float, high: float) -> dict[str, Tensor]:
    """The α-weighted mean of the values between the quantiles ``low`` and ``high``, coordinate by coordinate.

    low = high is the weighted median (the middle between two, if half of the weight lies on each side).
    """
    result = _integers(broadcast, reports, alpha)
    for name, old in broadcast.parameters.items():
        if not old.is_floating_point():
            continue
        rows = reports.rows(name)
        if rows is not None:
            result[name] = torch.empty(old.shape, dtype=old.dtype)
            between(rows, alpha, low, high, result[name].view(-1).numpy())
            continue
        flat, read = torch.empty(old.numel(), dtype=old.dtype), reports.reader(name)

        def some(start: int, stop: int, flat: Tensor = flat, read: Callable[..., Any] = read) -> None:
            found = np.empty(stop - start)
            between(list(read(slice(start, stop))), alpha, low, high, found)
            flat[start:stop] = torch.from_numpy(found)

        with one_blas_thread():
            in_parts(some, old.numel(), max(1, min(COLUMNS, VALUES // (4 * len(alpha)))))
        result[name] = flat.view(old.shape)
    return {name: result[name] for name in broadcast.parameters}


def _integers(broadcast: Broadcast, reports: Reports, alpha: Array) -> dict[str, Tensor]:
    """The integer buffers by weighted median."""
    found = {}
    for name, old in broadcast.parameters.items():
        if not old.is_floating_point():
            stack = torch.from_numpy(reports.reader(name)(slice(0, old.numel())))
            found[name] = middle(stack, alpha).view(old.shape)
    return found


def middle(stack: Tensor, alpha: Array) -> Tensor:
    """The lower weighted median of each column, which is one of its values, so that integers stay integers."""
    values, order = torch.sort(stack, dim=0, stable=True)
    above = torch.cumsum(torch.from_numpy(alpha)[order], dim=0)
    first = (above >= above[-1] / 2 - SLACK).to(torch.uint8).argmax(0, keepdim=True)
    return values.gather(0, first)[0]
