"""What a strategy is.

A strategy answers one question: given a cohort of clients, which coefficients alpha should
the server use? It is a frozen object with two pure functions, ``init(n) -> state`` and
``weights(state, cohort) -> (alpha, state)``. It has no hidden state, and it stores nothing about a
client before that client has taken part. It needs NumPy only, so the same object runs in the embedded
engine, on several machines and in Flower.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedalpha.strategies.cohort import Cohort, Need
from fedalpha.strategies.discounts import DISCOUNTS
from fedalpha.strategies.plug_point import PlugPoint
from fedalpha.strategies.simplex import Array, fill, normalise
from fedalpha.text import Registry, Spelled

State = Mapping[str, Any]
"""A tree of arrays and JSON scalars, which can be saved without pickling."""

PAPER = "Federated Learning Aggregation: New Robust Algorithms with Guarantees"
HERE = "this library; docs/theory.md"
"""The reference of the paper's rules, and that of this library's own rules."""


class TooFewError(ValueError):
    """A rule cannot weigh so few clients. If clients were refused in the round, the model is kept.

    All other errors of a rule end the run.
    """


@dataclass(frozen=True)
class Traits:
    """Properties that a strategy declares; the contract suite checks them.

    ``simplex``: alpha ≥ 0 and Σ alpha = 1; otherwise the alpha_i are coefficients of
    w_t + Σ alpha_i (w_i − w_t). ``shift_invariant``: a constant added to all losses does not change
    alpha. ``monotone``: when client i's own loss increases, alpha_i does not decrease (+1), does not
    increase (−1), or does not change (0); None declares nothing.
    """

    simplex: bool = True
    shift_invariant: bool = False
    monotone: Literal[-1, 0, 1] | None = None


class Strategy(Spelled, PlugPoint, ABC):
    """The *weigh* plug point.

    `possible`, `support`, `separable` and `sensitivity` bound the influence of clients on the weights. The defaults are
    conservative: one liar may get all of the weight, and the rule is refused if privacy needs a bound.
    """

    @property
    def traits(self) -> Traits:
        return Traits()

    @property
    def requires(self) -> frozenset[Need]:
        """All values that the rule may use in any round."""
        return frozenset()

    @property
    def ceiling(self) -> float:
        """The largest weight that a client can have in any cohort; see `cap`."""
        return 1.0

    def needs(self, state: State, cohort: Cohort) -> frozenset[Need]:
        """The values that the rule uses in this round; ``cohort`` has ids, sizes, round and accuracy, but no losses."""
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
        """The rule's proportions among ``some`` clients, if its weights can underflow to 0; else None. See `cap`."""
        return None

    def possible(self, cohort: Cohort, f: int, width: float = math.inf) -> float:
        """B(f): the largest alpha that any f clients can have together, whatever losses they claim.

        ``width``: the largest difference between two losses that counts.
        """
        return min(1.0, float(f))

    def support(self, n: int, width: float = math.inf) -> int:
        """The least number of n clients with a weight above 0, whatever losses (within ``width``) they claim."""
        return 1

    @property
    def separable(self) -> bool:
        """Whether a client's weight, before weights are normalised, depends on that client alone."""
        return False

    def sensitivity(self, C: float) -> float:
        """How far adding or removing one client moves Σ alpha_i·x_i, if ‖x_i‖ ≤ C.

        Raises ValueError if no bound is known. See `fedalpha.defence.privacy`.
        """
        if self.separable:
            raise ValueError(f"nothing bounds the weight of one client under {self}; write cap({self}, c)")
        raise entangled(self)

    def renormalise(self, alpha: Array) -> Array:
        """The weights of the remaining clients after others were lost; ``alpha`` are their previous weights.

        On the simplex they are divided by their sum and limited to `ceiling` by water-filling: these are the weights
        that `cap` gives if the lost clients have weight 0. Off the simplex they are coefficients and do not change.

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
            raise TooFewError(f"{self}: the {n} remaining clients cannot carry all of the weight")
        return fill(shared, max(self.ceiling, 1 / n), 1.0)


def weigh(rule: Strategy, state: State, cohort: Cohort) -> tuple[Array, State]:
    """``rule.weights`` with checks: one finite float64 per client, on the simplex if the rule declares it.

    >>> from fedalpha.strategies import FedAvg
    >>> weigh(FedAvg(), {}, Cohort(ids=[0, 1], sizes=[1, 3]))
    (array([0.25, 0.75]), {})
    """
    try:
        answer = rule.weights(state, cohort)
    except (TypeError, AttributeError) as error:
        if undeclared := _undeclared(rule, state, cohort):
            raise ValueError(
                f"{rule} reads cohort.{undeclared}, which is None because the rule does not declare it; add "
                f"{undeclared!r} to its `requires` ({type(error).__name__}: {error})"
            ) from error
        raise
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict)):
        raise ValueError(f"{rule}.weights gave {type(answer).__name__}; let it return the pair (alpha, state)")
    weights, state = answer
    alpha = np.asarray(weights, dtype=np.float64)
    if alpha.shape != (len(cohort),):
        raise ValueError(f"{rule} gave weights of shape {alpha.shape} for {len(cohort)} clients; give one per client")
    if not np.isfinite(alpha).all():
        raise ValueError(f"{rule} gave weights that are not finite in round {cohort.round}; fix the rule")
    if rule.traits.simplex and ((alpha < 0).any() or abs(math.fsum(alpha.tolist()) - 1) > 1e-9):
        raise ValueError(
            f"{rule} gave weights off the simplex in round {cohort.round} (sum {math.fsum(alpha.tolist()):g}, least "
            f"{alpha.min():g}); normalise them, or declare Traits(simplex=False)"
        )
    return alpha, state


def _undeclared(rule: Strategy, state: State, cohort: Cohort) -> str | None:
    """The last value that the rule reads before it fails, if the cohort does not have it; a rule is pure, so it may run
    again.
    """
    read: list[str] = []

    class Watched(Cohort):
        def __getattribute__(self, name: str) -> Any:
            value = super().__getattribute__(name)
            if value is None and name in get_args(Need):
                read.append(name)
            return value

    watched = Watched(**{field.name: getattr(cohort, field.name) for field in dataclasses.fields(cohort)})
    read.clear()
    try:
        rule.weights(state, watched)
    except (TypeError, AttributeError):
        return next((name for name in reversed(read) if name not in rule.requires), None)
    return None


def entangled(rule: Strategy) -> ValueError:
    """The error for a rule that is not `separable`, where privacy needs one that is."""
    return ValueError(
        f"{rule} lets one client move the weights of others, so its sensitivity is not bounded here; "
        "use FedAvg or FedSoftWorse/FedSoftBetter with known optima inside cap(…, c), or FedWorse(k)/FedBetter(k)"
    )


STRATEGIES: Registry[Strategy] = Registry(
    "strategy",
    Strategy,  # type: ignore[type-abstract]
    (DISCOUNTS,),
    package=__package__,
    usual="FedAvg",
)
"""Every strategy that can be written as text."""
