"""What the robust rules share: distances between the updates x_i = w_i − w_t, and how the aggregate is formed."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import field

import numpy as np
import torch
from torch import Tensor

from fedalpha.combine.base import COMBINES, Combine, Limit, Reports
from fedalpha.fast.gram import COLUMNS, VALUES
from fedalpha.strategies import Array, State
from fedalpha.strategies.company import Company
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
    """A step around another rule: it changes the reports before, or the aggregate after."""

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

    def check(self, company: Company) -> None:
        self.inner.check(company)

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
        """The reports as the inner rule sees them."""
        return reports


def check_simplex(rule: Combine, simplex: bool) -> None:
    if not simplex:
        raise ValueError(f"{rule} needs weights on the simplex, but this strategy gives coefficients; use combine=mean")


def supported(reports: Reports, alpha: Array) -> tuple[Reports, Array]:
    """The reports and weights of the clients with alpha ≠ 0."""
    if (alpha != 0).all():
        return reports, alpha
    items = [r for r, a in zip(reports.items, alpha.tolist(), strict=True) if a != 0]
    return Reports(items), alpha[alpha != 0]


def slices(reports: Reports) -> Iterator[tuple[str, slice, Tensor]]:
    """(name, coordinates, all clients' values there as a matrix), tensor by tensor, from left to right."""
    models = reports.models()
    width = max(1, min(COLUMNS, VALUES // len(models)))
    for name in models[0]:
        flat = [m[name].reshape(-1) for m in models]
        for start in range(0, len(flat[0]), width):
            part = slice(start, start + width)
            yield name, part, torch.stack([values[part] for values in flat])


def distances(products: Array) -> Array:
    """‖x_i − x_j‖² from the Gram matrix."""
    squares = np.diagonal(products)
    found: Array = np.maximum(squares[:, None] + squares[None, :] - 2 * products, 0.0)
    np.fill_diagonal(found, 0.0)
    return found


def combination(broadcast: Broadcast, reports: Reports, coefficients: Array, alpha: Array) -> dict[str, Tensor]:
    """w_t + Σ c_i·(w_i − w_t), in float64; integer buffers by weighted median."""
    weights = torch.from_numpy(coefficients)

    def joined(values: Tensor, base: Tensor) -> Tensor:
        return base + weights @ values.double().sub_(base)

    return _assembled(broadcast, reports, alpha, joined)


def coordinatewise(broadcast: Broadcast, reports: Reports, alpha: Array, low: float, high: float) -> dict[str, Tensor]:
    """The α-weighted mean of what lies between the quantiles ``low`` and ``high``, coordinate by coordinate.

    low = high is the weighted median (the middle between two, if half of the weight lies on each side).
    """
    return _assembled(broadcast, reports, alpha, lambda values, _: _between(values, alpha, low, high))


def _assembled(
    broadcast: Broadcast, reports: Reports, alpha: Array, joined: Callable[[Tensor, Tensor], Tensor]
) -> dict[str, Tensor]:
    """``joined(values, w_t)`` of all floating coordinates; integer buffers by weighted median."""
    plain = torch.contiguous_format
    result = {name: old.clone(memory_format=plain) for name, old in broadcast.parameters.items()}
    for name, part, values in slices(reports):
        if values.is_floating_point():
            found = joined(values, broadcast.parameters[name].double().reshape(-1)[part])
        else:
            found = middle(values, alpha)
        result[name].view(-1)[part] = found
    return result


def _between(stack: Tensor, alpha: Array, low: float, high: float) -> Tensor:
    values, order = torch.sort(stack, dim=0, stable=True)
    above = torch.cumsum(torch.from_numpy(alpha)[order], dim=0)
    above = above / above[-1:].clone()
    below = torch.cat([torch.zeros_like(above[:1]), above[:-1]])
    if high - low > _EQUAL:
        share = (above.clamp(low, high) - below.clamp(low, high)) / (high - low)
    else:  # every value whose interval touches the quantile: one, or the two beside it
        touch = (below <= low + _EQUAL) & (above >= low - _EQUAL)
        share = touch.double() / touch.sum(0)
    wide: Tensor = torch.where(share > 0, values.double(), 0.0)
    return (wide * share).sum(0)


_EQUAL = 1e-12
"""Smaller differences between sums of weights count as rounding."""


def middle(stack: Tensor, alpha: Array) -> Tensor:
    """The lower weighted median of each column: one of the values, so that integers stay what they are."""
    values, order = torch.sort(stack, dim=0, stable=True)
    above = torch.cumsum(torch.from_numpy(alpha)[order], dim=0)
    first = (above >= above[-1] / 2 - _EQUAL).to(torch.uint8).argmax(0, keepdim=True)
    return values.gather(0, first)[0]
