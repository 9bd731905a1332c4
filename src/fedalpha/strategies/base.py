"""What a strategy is, and what it sees.

A strategy answers one question: given a cohort of clients, which coefficients alpha should
the server use? It is a frozen object with two pure functions, ``init(n) -> state`` and
``weights(state, cohort) -> (alpha, state)``; nothing is hidden, nothing is stored per client
before a client has been seen. It needs NumPy only, so the same object runs in the embedded
engine, on several machines and in Flower.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedalpha.text import Registry, Spelled

Array = NDArray[np.float64]
State = Mapping[str, Any]
"""A tree of arrays and JSON scalars: it can be saved without pickling."""
Need = Literal["before", "train", "after", "steps", "norms", "gram", "accuracy"]

LOSSES: tuple[Need, ...] = ("before", "train", "after")
KNOWN_BEFORE_TRAINING: frozenset[Need] = frozenset({"before", "accuracy"})
"""A rule that needs no more than this is weighed first; clients with alpha = 0 then do not train."""


@dataclass(frozen=True, eq=False)
class Cohort:
    """The clients of one round, as the weighing rule sees them: aligned arrays, checked once.

    ``before`` holds F_i(w_t), ``train`` the running mean over the last local epoch, ``after``
    F_i(w_i); ``optima`` the F_i* (0 where unknown); ``steps`` local steps, ``norms`` the norms
    ‖w_i − w_t‖ and ``gram`` the matrix ⟨w_i − w_t, w_j − w_t⟩. What a rule did not ask for is
    ``None``.
    """

    ids: NDArray[np.int64]
    sizes: Array
    round: int = 0
    accuracy: float | None = None
    before: Array | None = None
    train: Array | None = None
    after: Array | None = None
    optima: Array | None = None
    steps: Array | None = None
    norms: Array | None = None
    gram: Array | None = None

    def __post_init__(self) -> None:
        sizes = _vector("sizes", self.sizes)
        n = len(sizes)
        if n == 0:
            raise ValueError("the cohort is empty: there is nobody to weigh; pass at least one client")
        if (sizes < 0).any() or not (sizes > 0).any():
            raise ValueError("sizes must be non-negative with a positive sum: pass each client's sample count")
        ids = np.asarray(self.ids, dtype=np.int64)
        if ids.shape != (n,):
            raise ValueError(f"ids has shape {ids.shape}, but there are {n} clients (sizes): pass one id a client")
        if len(np.unique(ids)) != n:
            raise ValueError("ids repeat: a client takes part once in a round, so its id may appear only once")
        object.__setattr__(self, "ids", ids)
        object.__setattr__(self, "sizes", sizes)
        for name in ("before", "train", "after", "optima", "steps", "norms"):
            value = getattr(self, name)
            if value is not None:
                label = f"losses ({name})" if name in LOSSES else name
                vector = _vector(label, value)
                if len(vector) != n:
                    raise ValueError(f"{label} has {len(vector)} values for {n} clients (sizes): pass one a client")
                object.__setattr__(self, name, vector)
        if self.gram is not None:
            gram = np.asarray(self.gram, dtype=np.float64)
            if gram.shape != (n, n) or not np.isfinite(gram).all():
                raise ValueError(f"gram must be a finite {n}×{n} matrix, got shape {gram.shape}: pass one row a client")
            object.__setattr__(self, "gram", gram)
        if self.round < 0:
            raise ValueError(f"round is {self.round}: rounds are counted from 0")
        if self.accuracy is not None and not 0 <= self.accuracy <= 1:
            raise ValueError(f"accuracy is {self.accuracy}: give a fraction between 0 and 1 (0.6, not 60)")

    def __len__(self) -> int:
        return len(self.ids)

    def replace(self, **changes: Any) -> Cohort:
        """A copy that knows more: ``cohort.replace(before=losses)``."""
        return dataclasses.replace(self, **changes)

    def prior(self, kind: str) -> Array:
        """p: proportional to the sizes, or uniform."""
        if kind == "uniform":
            return np.full(len(self), 1.0 / len(self))
        if self.sizes.max() > 1e300:  # their sum may overflow
            return normalise(self.sizes / self.sizes.max())
        return normalise(self.sizes)

    def require(self, need: Need) -> Array:
        """The array called ``need``, or an error that says who must provide it."""
        value: Array | None = getattr(self, need)
        if value is None:
            raise ValueError(
                f"this strategy needs {need!r} of every client and the cohort does not have it; "
                f"list it in the strategy's `requires`, or pass {need}= when you build the cohort"
            )
        return value


@dataclass(frozen=True)
class Traits:
    """What a strategy promises; the contract suite checks exactly that.

    ``simplex``: alpha ≥ 0 and Σ alpha = 1; otherwise alpha are coefficients of
    w_t + Σ alpha_i (w_i − w_t). ``shift_invariant``: a constant added to all losses changes
    nothing. ``monotone``: when client i's own loss rises, alpha_i does not fall (+1), does not
    rise (−1), does not change (0); None promises nothing.
    """

    simplex: bool = True
    shift_invariant: bool = False
    monotone: Literal[-1, 0, 1] | None = None


class Strategy(Spelled, ABC):
    """The *weigh* plug point. Subclasses are frozen dataclasses; equal text means equal."""

    @property
    def traits(self) -> Traits:
        return Traits()

    @property
    def requires(self) -> frozenset[Need]:
        """Everything the rule may ever look at."""
        return frozenset()

    @property
    def ceiling(self) -> float:
        """What no client may weigh more than, whoever else is there; see `cap`."""
        return 1.0

    def needs(self, state: State, cohort: Cohort) -> frozenset[Need]:
        """What the rule looks at in this round; ``cohort`` knows ids, sizes, round and accuracy."""
        return self.requires

    def init(self, n: int | None = None) -> State:
        """The state before round 0; ``n`` is the number of registered clients, if known."""
        return {}

    @abstractmethod
    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        """alpha, aligned with ``cohort.ids``, and the next state. Pure."""

    def in_force(self, state: State, cohort: Cohort) -> Strategy:
        """The rule that weighs in this round; see `switch`."""
        return self

    def among(self, state: State, cohort: Cohort, some: NDArray[np.bool_]) -> Array | None:
        """In which proportion the rule weighs ``some`` clients, for rules whose zeros are underflow; see `cap`."""
        return None

    def renormalise(self, alpha: Array) -> Array:
        """The weights of those who are left (``alpha`` as they had it) after others were lost.

        On the simplex they are divided by their sum, at most `ceiling` each (water-filling again: what
        `cap` would have given, had the others weighed nothing); elsewhere they are coefficients and stay.

        >>> from fedalpha.strategies import strategy
        >>> strategy("cap(FedAvg, 0.5)").renormalise(np.array([0.4, 0.1, 0.1]))
        array([0.5 , 0.25, 0.25])
        """
        if not self.traits.simplex:
            return alpha
        shared, n = normalise(alpha), int((alpha > 0).sum())
        if shared.max() <= self.ceiling:
            return shared
        if self.ceiling * n < 1 - 1e-12:
            raise ValueError(f"{self}: the {n} clients who are left cannot carry all of the weight")
        return fill(shared, max(self.ceiling, 1 / n), 1.0)


def weigh(rule: Strategy, state: State, cohort: Cohort) -> tuple[Array, State]:
    """``rule.weights``, held to what the rule promises: one finite float64 per client, on the simplex if declared.

    >>> from fedalpha.strategies import FedAvg
    >>> weigh(FedAvg(), {}, Cohort(ids=[0, 1], sizes=[1, 3]))
    (array([0.25, 0.75]), {})
    """
    answer = rule.weights(state, cohort)
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict)):
        raise ValueError(f"{rule}.weights gave {type(answer).__name__}; let it return the pair (alpha, state)")
    weights, state = answer
    alpha = np.asarray(weights, dtype=np.float64)
    if alpha.shape != (len(cohort),):
        raise ValueError(f"{rule} gave weights of shape {alpha.shape} for {len(cohort)} clients; give one per client")
    if not np.isfinite(alpha).all():
        raise ValueError(f"{rule} gave weights that are not finite in round {cohort.round}; mend the rule")
    if rule.traits.simplex and ((alpha < 0).any() or abs(math.fsum(alpha.tolist()) - 1) > 1e-9):
        raise ValueError(
            f"{rule} gave weights off the simplex in round {cohort.round} (sum {math.fsum(alpha.tolist()):g}, least "
            f"{alpha.min():g}); normalise them, or declare Traits(simplex=False)"
        )
    return alpha, state


STRATEGIES: Registry[Strategy] = Registry("strategy", Strategy)  # type: ignore[type-abstract]
"""Every strategy that can be written as text."""


def normalise(a: Array) -> Array:
    """a / Σ a with an exactly rounded sum, so that the order of clients does not matter."""
    return a / math.fsum(a.tolist())


def fill(a: Array, c: float, mass: float) -> Array:
    """min(c, λ·a) with the λ that gives ``mass`` in all, or c on all of a's support if that is less."""
    order = np.argsort(-a, kind="stable")
    ordered = a[order]
    support = int((ordered > 0).sum())
    if support * c <= mass:
        return np.where(a > 0, c, 0.0)
    # With the j largest at the cap the others share mass − j·c as a/tail_j: take the first j that fits.
    tails = np.cumsum(ordered[::-1])[::-1][:support]
    rest = mass - np.arange(support) * c
    fits = rest * (ordered[:support] / tails) <= c
    fits[-1] = True  # it does, but for rounding
    j = int(np.argmax(fits))
    with np.errstate(over="ignore"):  # a/tail_j may be huge for those at the cap, and is at most 1 for the others
        filled: Array = np.minimum(c, rest[j] * (a / tails[j]))
    return filled


def choice(owner: str, argument: str, value: object, options: tuple[str, ...]) -> None:
    """Refuse a word that is not among ``options``."""
    if value not in options:
        raise ValueError(f"{owner}: {argument} = {value!r} is not one of {', '.join(options)}")


def recall(memory: State, ids: NDArray[np.int64], default: float) -> Array:
    """Values remembered for ``ids`` in a sparse memory ``{"ids", "values"}`` (ids sorted)."""
    values = np.full(len(ids), default)
    if memory:
        position = np.searchsorted(memory["ids"], ids)
        position = np.minimum(position, len(memory["ids"]) - 1)
        known = memory["ids"][position] == ids
        values[known] = memory["values"][position[known]]
    return values


def remember(memory: State, ids: NDArray[np.int64], values: Array) -> State:
    """The sparse memory with ``ids`` set to ``values``; only clients that were seen take space."""
    if not memory:
        order = np.argsort(ids)
        return {"ids": ids[order], "values": values[order]}
    all_ids = np.union1d(memory["ids"], ids)
    merged = np.empty(len(all_ids))
    merged[np.searchsorted(all_ids, memory["ids"])] = memory["values"]
    merged[np.searchsorted(all_ids, ids)] = values
    return {"ids": all_ids, "values": merged}


def _vector(name: str, value: ArrayLike) -> Array:
    try:
        vector = np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must be a list of numbers, one a client: {error}") from None
    if vector.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {vector.shape}: pass one number a client")
    bad = np.flatnonzero(~np.isfinite(vector))
    if len(bad):
        raise ValueError(
            f"{name}[{bad[0]}] is {vector[bad[0]]}: only finite values can be weighed; leave that client out"
        )
    return vector
