"""Σ alpha_i·w_i in NumPy, with the same bits as `fedalpha.combine.sums` in torch.

Sums are in float64, blocks of the id-sorted cohort are merged in block order, and products are rounded before they are
added. Integer buffers come from the heaviest client. Arrays are converted in pieces that stay in the
processor's cache, so no array is copied as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedalpha.fast.blocks import blocks
from fedalpha.fast.compiled import numba_version
from fedalpha.fast.gram import norms
from fedalpha.fast.threads import in_parts
from fedalpha.strategies import Array

Arrays = dict[str, NDArray[Any]]
"""A model: arrays by name."""
_PIECE = 1 << 14
"""Values that are converted and added at a time; they stay in the processor's cache."""
_SHARE = 1 << 18
"""Values that a thread takes at a time. No value depends on which thread computes it."""
_WORTH_COMPILING = 1 << 24
"""For sums of fewer values, importing numba takes longer than the sum."""


def is_float(value: NDArray[Any]) -> bool:
    return np.issubdtype(value.dtype, np.floating)


class Running:
    """Σ alpha_i·w_i over the clients of an order, added in the order of their places.

    ``alpha`` has the weights of all clients of the order, whether they deliver or not, because these decide the blocks.
    In blocks of one or two clients, models wait until two have arrived, and both are added in one pass over the sum, so
    that these blocks need no array besides the sum. Larger blocks have their own array, and models do not wait.
    This code is not compiled, because replies come over a network and numba takes 140 MB. ``alone`` computes the factor
    of an update w_i − w_t from its norm; ``sent`` is w_t.

    >>> running = Running(np.array([0.25, 0.75]))
    >>> running.add(0, {"w": np.ones(2)})
    >>> running.add(1, {"w": np.zeros(2)})
    >>> running.total()
    {'w': array([0.25, 0.25])}
    """

    def __init__(
        self,
        alpha: Array,
        alone: Callable[[Array], Array] | None = None,
        sent: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        self.alpha: list[float] = alpha.tolist()
        self._alone, self._sent = alone, sent or {}
        self._factors: dict[int, float] = {}
        self.heaviest = -1.0
        parts = blocks(len(alpha))
        self._block = {place: block for block in parts for place in block}
        self._size = len(parts[0])
        self._waiting: list[tuple[int, Mapping[str, NDArray[Any]]]] = []
        self._now: range | None = None
        self._total: Arrays = {}
        self._part: Arrays = {}

    def add(self, place: int, model: Mapping[str, NDArray[Any]]) -> None:
        """Add the model of the client at a place of the order; its weight 0 adds nothing."""
        if self.alpha[place] == 0:
            return
        if self._alone is not None:
            factor = self.alpha[place] * self._alone(norms([model], self._sent, compiles=False))
            self._factors[place] = float(factor[0])
        if self._size == 2 and self._waiting and self._block[self._waiting[0][0]] is not self._block[place]:
            self._add_waiting()  # so that no block is added in two passes
        self._waiting.append((place, model))
        if len(self._waiting) == 2 or self._size > 2:
            self._add_waiting()

    def total(self) -> Arrays:
        """The sum of what was added: floats in float64, integer buffers of the heaviest client."""
        self._add_waiting()
        self._merge()
        rest = math.fsum(self.alpha[place] for place in self._factors) - math.fsum(self._factors.values())
        if rest:
            for name, old in self._sent.items():
                if is_float(old):
                    _add(self._total[name].reshape(-1), [old.reshape(-1)], [[rest]])
        return self._total

    def _add_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        long = self._size > 2
        if long and (block := self._block[waiting[0][0]]) is not self._now:
            self._merge()
            self._now = block
        floats = {name: value for name, value in waiting[0][1].items() if is_float(value)}
        into, groups = self._part if long else self._total, self._groups(waiting)
        for name, value in floats.items():
            if name not in into:
                into[name] = np.zeros(value.shape)
            _add(into[name].reshape(-1), [model[name].reshape(-1) for _, model in waiting], groups)
        for place, model in waiting:
            if self.alpha[place] > self.heaviest:
                self.heaviest = self.alpha[place]
                self._total |= {name: value for name, value in model.items() if not is_float(value)}

    def _groups(self, waiting: Sequence[tuple[int, Any]]) -> list[list[float]]:
        """The weights of the models that wait, one list per block."""
        found: dict[range, list[float]] = {}
        for place, _ in waiting:
            found.setdefault(self._block[place], []).append(self._factors.get(place, self.alpha[place]))
        return list(found.values())

    def _merge(self) -> None:
        for name, part in self._part.items():
            if name in self._total:
                self._total[name] += part
            else:
                self._total[name] = part
        self._part = {}


def _adders(values: Mapping[str, Sequence[NDArray[Any]]]) -> dict[str, Callable[..., None]]:
    """The functions that add the values of each array: compiled code, or NumPy in pieces, with the same bytes."""
    large = sum(one.size for several in values.values() for one in several) >= _WORTH_COMPILING
    compiles = large and numba_version() is not None
    return {
        name: _add_compiled if compiles and all(one.dtype == np.float32 for one in several) else _add
        for name, several in values.items()
    }


def _add_compiled(
    total: NDArray[np.float64], values: Sequence[NDArray[Any]], groups: Sequence[Sequence[float]]
) -> None:
    """`_add` for values in float32. Each client's values are read once, the total twice."""
    from fedalpha.fast.kernels import add_blocks

    addresses = np.array([value.__array_interface__["data"][0] for value in values], dtype=np.uint64)
    ends = np.cumsum([len(group) for group in groups])
    add_blocks(addresses, np.array([a for group in groups for a in group]), ends, 0, len(total), total)


def _add(total: NDArray[np.float64], values: Sequence[NDArray[Any]], groups: Sequence[Sequence[float]]) -> None:
    """total += Σ a·v of each group, piece by piece; ``groups`` hold the weights of consecutive values."""
    room = [np.empty(min(_PIECE, len(total))) for _ in range(2)]
    for piece in _pieces(len(total), _PIECE):
        mine, (product, part) = total[piece], (array[: piece.stop - piece.start] for array in room)
        following = iter(values)
        for group in groups:
            # A group of one is added to the total at once: a total of zeros plus a product is that product.
            into = mine if len(group) == 1 else part
            if into is part:
                part[:] = 0.0
            for a in group:
                np.copyto(product, next(following)[piece])
                product *= a
                into += product
            if into is part:
                mine += part


def _in_shares(
    work: Callable[[str, slice], None], arrays: Mapping[str, NDArray[Any]], adders: Mapping[str, Callable[..., None]]
) -> None:
    """Call ``work`` for parts of the arrays that together cover all values; compiled sums use several threads.

    With NumPy's short operations, threads would mostly wait for the interpreter's lock.
    """
    parts: list[list[tuple[str, slice]]] = [[]]
    room = _SHARE
    for name, value in arrays.items():
        for start in range(0, value.size, _SHARE):
            part = slice(start, min(start + _SHARE, value.size))
            if part.stop - start > room and parts[-1]:
                parts.append([])
                room = _SHARE
            parts[-1].append((name, part))
            room -= part.stop - start

    def some(start: int, stop: int) -> None:
        for share in parts[start:stop]:
            for name, part in share:
                work(name, part)

    in_parts(some, len(parts), 1 if _add_compiled in adders.values() else len(parts))


def _pieces(length: int, width: int) -> Iterator[slice]:
    for start in range(0, length, width):
        yield slice(start, min(start + width, length))


def weighted_mean(alpha: Array, models: Sequence[Mapping[str, NDArray[Any]]], current: Arrays, simplex: bool) -> Arrays:
    """The aggregate, each array in the dtype of ``current``; little other memory is used.

    Off the simplex alpha are coefficients of w_t + Σ alpha_i (w_i − w_t).
    """
    rest = 0.0 if simplex else 1 - math.fsum(alpha.tolist())
    groups = [[i for i in block if alpha[i] != 0] for block in blocks(len(alpha))]
    counted = [i for group in groups for i in group]
    weights = [[float(alpha[i]) for i in group] for group in groups if group]
    if not weights:  # no client counts, for example because all are idle
        return dict(current)
    heaviest = int(np.argmax(alpha))
    result: Arrays = {
        name: np.empty(old.shape, old.dtype) if is_float(old) else models[heaviest][name]
        for name, old in current.items()
    }

    floats = {name: old.reshape(-1) for name, old in current.items() if is_float(old)}
    given = {name: [models[i][name].reshape(-1) for i in counted] for name in floats}
    adders = _adders(given)

    def sum_up(name: str, where: slice) -> None:
        flat, before, add = result[name].reshape(-1)[where], floats[name][where], adders[name]
        values = [value[where] for value in given[name]]
        width = _PIECE if add is _add else _SHARE
        room = np.empty(min(width, len(flat)))
        for piece in _pieces(len(flat), width):
            total = room[: piece.stop - piece.start]
            total[:] = 0.0
            add(total, [value[piece] for value in values], weights)
            if rest:
                total += before[piece].astype(np.float64) * rest
            flat[piece] = total

    _in_shares(sum_up, floats, adders)
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


def beyond(arrays: Arrays, current: Arrays, bound: float, known: dict[str, float] | None = None) -> str | None:
    """Name a value that is not finite, or ``bound`` times larger than the current ones (at least 1); else None.

    ``known`` caches the largest absolute values of the current arrays for the next call.
    """
    known = {} if known is None else known
    for name, value in arrays.items():
        # If the norms are small, every value is: one pass over the array, and none over the current one.
        if not is_float(value) or small(value, bound):
            continue
        if name not in known:
            known[name] = largest(current[name])
        found, limit = largest(value), bound * max(1.0, known[name])
        if not math.isfinite(found):
            return f"{name!r} holds NaN or infinity"
        if found > limit:
            return f"{name!r} holds {found:g}; at most {limit:g} is accepted (bound={bound:g})"
    return None


def all_finite(value: NDArray[Any]) -> bool:
    """Whether an array holds neither NaN nor infinity."""
    return not is_float(value) or small(value, math.inf) or math.isfinite(largest(value))


def small(value: NDArray[Any], limit: float) -> bool:
    """Whether the norms of its pieces prove that all values are finite and within ``limit``; False proves nothing.

    The norms need not be exact, because a margin of half of the squared limit is large. The result of the check does
    not depend on the norms, because `largest` decides if they prove nothing.
    """
    most = min(0.5 * limit * limit, 1e30)
    flat = value.ravel(order="K")
    with np.errstate(all="ignore"):
        return all(float(np.dot(part, part)) <= most for part in (flat[piece] for piece in _pieces(flat.size, _PIECE)))


def largest(value: NDArray[Any]) -> float:
    """The largest absolute value; NaN if there is one."""
    if not value.size:
        return 0.0
    return float(np.max([float(np.max(value)), -float(np.min(value))]))


def distance(model: Mapping[str, NDArray[Any]], sent: Mapping[str, NDArray[Any]]) -> float:
    """The Euclidean norm of model − sent over all floating arrays."""
    squares = []
    for name, old in sent.items():
        if is_float(old):
            move = (model[name].astype(np.float64) - old).reshape(-1)
            squares.append(float(np.dot(move, move)))
    return math.sqrt(math.fsum(squares))
