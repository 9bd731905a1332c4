"""Σ alpha_i·w_i in NumPy, to the bit what `fedalpha.combine.sums` gives in torch.

Float64, blocks of the id-sorted cohort merged in block order, products rounded before they are
added; integer buffers come from the heaviest client. Arrays are widened piece by piece, in pieces that stay in the
processor's cache, so no array is copied as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedalpha.fast.blocks import blocks
from fedalpha.strategies import Array

Arrays = dict[str, NDArray[Any]]
"""A model: arrays by name."""
_PIECE = 1 << 15


def is_float(value: NDArray[Any]) -> bool:
    return np.issubdtype(value.dtype, np.floating)


class Running:
    """Σ alpha_i·w_i over the clients of an order, added one by one in the order of their places.

    ``alpha`` holds the weights of all clients of the order, whether they deliver or not: they decide the blocks.

    >>> running = Running(np.array([0.25, 0.75]))
    >>> running.add(0, {"w": np.ones(2)})
    >>> running.add(1, {"w": np.zeros(2)})
    >>> running.total()
    {'w': array([0.25, 0.25])}
    """

    def __init__(self, alpha: Array) -> None:
        self.alpha = alpha.tolist()
        self.heaviest = -1.0
        self._block = {place: block for block in blocks(len(alpha)) for place in block}
        self._now: range | None = None
        self._total: Arrays = {}
        self._part: Arrays = {}

    def add(self, place: int, model: Mapping[str, NDArray[Any]]) -> None:
        """Add the model of the client at a place of the order; its weight 0 adds nothing."""
        a = self.alpha[place]
        if a == 0:
            return
        if (block := self._block[place]) is not self._now:
            self._merge()
            self._now = block
        # A block of one client is added to the total at once: a total of zeros plus a product is that product.
        into = self._total if len(block) == 1 else self._part
        for name, value in model.items():
            if is_float(value):
                if name not in into:
                    into[name] = np.zeros(value.shape)
                _add(into[name].reshape(-1), value.reshape(-1), a)
            elif a > self.heaviest:
                self._total[name] = value
        self.heaviest = max(self.heaviest, a)

    def total(self) -> Arrays:
        """The sum of what was added: floats in float64, integer buffers of the heaviest client."""
        self._merge()
        return self._total

    def _merge(self) -> None:
        for name, part in self._part.items():
            if name in self._total:
                self._total[name] += part
            else:
                self._total[name] = part
        self._part = {}


def _add(total: NDArray[np.float64], values: NDArray[Any], a: float) -> None:
    """total += a·values, piece by piece."""
    wide = np.empty(min(_PIECE, len(total)))
    for piece in _pieces(len(total)):
        product = wide[: piece.stop - piece.start]
        np.copyto(product, values[piece])
        product *= a
        total[piece] += product


def _pieces(length: int) -> Iterator[slice]:
    for start in range(0, length, _PIECE):
        yield slice(start, min(start + _PIECE, length))


def weighted_mean(alpha: Array, models: Sequence[Mapping[str, NDArray[Any]]], current: Arrays, simplex: bool) -> Arrays:
    """The aggregate, each array in the dtype of ``current``; besides it, little memory is used.

    Off the simplex alpha are coefficients of w_t + Σ alpha_i (w_i − w_t).
    """
    rest = 0.0 if simplex else 1 - math.fsum(alpha.tolist())
    groups = [[i for i in block if alpha[i] != 0] for block in blocks(len(alpha))]
    groups = [group for group in groups if group]
    if not groups:  # no client counts, for example because all are idle
        return dict(current)
    heaviest = int(np.argmax(alpha))
    result: Arrays = {}
    for name, old in current.items():
        if not is_float(old):
            result[name] = models[heaviest][name]
            continue
        result[name] = np.empty(old.shape, old.dtype)
        flat, before = result[name].reshape(-1), old.reshape(-1)
        values = [m[name].reshape(-1) for m in models]
        buffers = tuple(np.empty(min(_PIECE, len(flat))) for _ in range(3))
        for piece in _pieces(len(flat)):
            total, part, product = (buffer[: piece.stop - piece.start] for buffer in buffers)
            total[:] = 0.0
            for group in groups:
                into = total if len(group) == 1 else part
                if into is part:
                    part[:] = 0.0
                for i in group:
                    np.copyto(product, values[i][piece])
                    product *= alpha[i]
                    into += product
                if into is part:
                    total += part
            if rest:
                np.copyto(product, before[piece])
                product *= rest
                total += product
            flat[piece] = total
    return result


def mean_of(total: Arrays, current: Arrays, rest: float) -> Arrays:
    """The aggregate from a `Running` total; ``rest`` is the coefficient of the current model (0 on the simplex)."""
    result: Arrays = {}
    for name, old in current.items():
        value = total[name]
        if rest and is_float(old):
            value = value + rest * old.astype(np.float64)
        result[name] = np.asarray(value).astype(old.dtype)
    return result


def largest(arrays: Mapping[str, NDArray[Any]]) -> dict[str, float]:
    """The largest absolute value of each floating array; NaN where an array holds one."""
    return {
        name: max(float(value.max()), -float(value.min())) if value.size else 0.0
        for name, value in arrays.items()
        if is_float(value)
    }


def beyond(arrays: Mapping[str, NDArray[Any]], known: Mapping[str, float], bound: float) -> str | None:
    """Where arrays are not finite, or ``bound`` times larger than ``known`` (`largest`) says; None if nowhere."""
    for name, value in largest(arrays).items():
        limit = bound * max(1.0, known.get(name, 1.0))
        if not math.isfinite(value):
            return f"{name!r} holds NaN or infinity"
        if value > limit:
            return f"{name!r} holds {value:g}; at most {limit:g} is accepted (bound={bound:g})"
    return None
