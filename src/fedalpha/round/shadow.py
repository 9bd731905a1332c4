"""Shadow rules: what other strategies would have weighed in the same rounds. Their weights are recorded, never applied.

Each shadow rule sees the cohort of the round, has a state of its own, and changes no byte of the run. A rule that looks
at losses before training gets them from the driver, which asks clients for them if no other rule does. What a round
cannot give it (norms, local steps) is refused before the run; what is missing in one round is recorded.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedalpha.round.gate import Gate
from fedalpha.round.state import Algorithm, Outcome
from fedalpha.strategies import Array, Cohort, Need, State, Strategy
from fedalpha.strategies import weigh as checked_weights
from fedalpha.strategies.cohort import LOSSES

_FREE: frozenset[Need] = frozenset({"before", "train", "accuracy", "staleness"})
"""What every round can give a shadow rule."""


@dataclass(frozen=True)
class Shadows:
    """The shadow rules of a run."""

    rules: tuple[Strategy, ...] = ()

    def __post_init__(self) -> None:
        texts = [str(rule) for rule in self.rules]
        if again := sorted({text for text in texts if texts.count(text) > 1}):
            raise ValueError(f"shadow: {', '.join(again)} is given twice; keep one of them")

    @property
    def requires(self) -> frozenset[Need]:
        """Everything that some rule may look at."""
        return frozenset().union(*(rule.requires for rule in self.rules))

    def check(self, algorithm: Algorithm) -> None:
        """Raise ValueError for a rule that could not run in this algorithm, or that the round cannot inform."""
        for rule in self.rules:
            if lacking := sorted(rule.requires - _FREE - algorithm.weigh.requires):
                raise ValueError(
                    f"shadow: {rule} looks at {', '.join(lacking)}, which a round of {algorithm.weigh} does not "
                    f"measure; leave it out, or let the run itself weigh by a rule that needs {', '.join(lacking)}"
                )
            try:
                dataclasses.replace(algorithm, weigh=rule)
            except ValueError as error:
                raise ValueError(f"shadow: {error}") from None

    def init(self, clients: int | None) -> list[State]:
        """The rules' states before round 0."""
        return [rule.init(clients) for rule in self.rules]

    def asks(self, states: Sequence[State], cohort: Cohort) -> bool:
        """Whether a rule looks at losses before training that the round did not ask for."""
        if cohort.before is not None:
            return False
        return any("before" in rule.needs(state, cohort) for rule, state in zip(self.rules, states, strict=True))

    def weigh(
        self, states: Sequence[State], outcome: Outcome, gate: Gate, asked: Asked | None, accuracy: float | None
    ) -> tuple[dict[str, Any], list[State]]:
        """The record of each rule by its text, and the next states.

        ``gate`` is a fresh one of the same round: it says which of the losses that were ``asked`` for can be used.
        ``accuracy`` is the last one on the signal part.
        """
        told = Told(outcome, _answers(outcome.cohort, gate, asked), accuracy)
        record: dict[str, Any] = {}
        following = []
        for rule, state in zip(self.rules, states, strict=True):
            try:
                alpha, state = told.weigh(rule, state)
                record[str(rule)] = _compared(alpha, outcome.alpha)
            except ValueError as error:
                record[str(rule)] = {"missing": str(error)}
            following.append(state)
        return record, following


@dataclass(frozen=True, eq=False)
class Asked:
    """Losses before training that were asked for because of a shadow rule, and by client id why one is missing."""

    ids: NDArray[np.int64]
    losses: Array
    problems: Mapping[int, str] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Told:
    """What shadow rules see of a round; ``before`` are losses, or why there are none."""

    outcome: Outcome
    before: Array | str
    accuracy: float | None

    def weigh(self, rule: Strategy, state: State) -> tuple[Array, State]:
        """The rule's weights of the round's cohort, and its next state. Raises ValueError if something is missing."""
        if self.outcome.kept is not None:
            raise ValueError(f"the model was kept: {self.outcome.kept}")
        cohort = self.outcome.cohort
        if cohort.accuracy is None:
            cohort = cohort.replace(accuracy=self.accuracy)
        if cohort.staleness is None:
            cohort = cohort.replace(staleness=np.zeros(len(cohort)))
        seen = {
            kind: self._losses(kind)
            for kind in sorted(rule.needs(state, cohort) & set(LOSSES))
            if getattr(cohort, kind) is None
        }
        usable = np.logical_and.reduce([np.ones(len(cohort), dtype=bool), *(np.isfinite(v) for v in seen.values())])
        if not usable.any():
            raise ValueError("no client of the cohort gave a usable loss")
        part = _only(cohort, usable).replace(**{kind: losses[usable] for kind, losses in seen.items()})
        weights, following = checked_weights(rule, state, part)
        alpha = np.zeros(len(cohort))
        alpha[usable] = weights
        lost = np.isin(cohort.ids, [refusal.client for refusal in self.outcome.refusals])
        if alpha[lost].any():  # what the rule would have done with the clients that delivered
            alpha[~lost], alpha[lost] = rule.renormalise(alpha[~lost]), 0.0
        return alpha, following

    def _losses(self, kind: str) -> Array:
        if kind != "before":
            return _reported(self.outcome, kind)
        if isinstance(self.before, str):
            raise ValueError(self.before)
        return self.before


def _answers(cohort: Cohort, gate: Gate, asked: Asked | None) -> Array | str:
    """The losses before training, NaN where the gate refuses one: that client would have been absent."""
    if asked is None:
        return "losses before training were not asked for"
    losses = gate.losses(asked.ids, asked.losses, asked.problems)
    if not np.isfinite(losses).any() and gate.refusals:
        first = gate.refusals[0]
        return f"no client gave a usable loss before training; client {first.client}: {first.reason}"
    known = dict(zip(asked.ids.tolist(), losses.tolist(), strict=True))
    return np.array([known.get(i, np.nan) for i in cohort.ids.tolist()])


def _reported(outcome: Outcome, kind: str) -> Array:
    """Losses that came with the reports; those of clients that were lost are NaN, they count as absent."""
    ids = outcome.cohort.ids.tolist()
    values = outcome.losses.get(kind, [None] * len(ids))
    lost = {refusal.client for refusal in outcome.refusals}
    silent = [i for i, v in zip(ids, values, strict=True) if v is None and i not in lost]
    if silent:
        more = f" and {len(silent) - 1} more" if len(silent) > 1 else ""
        raise ValueError(f"there is no loss ({kind}) of client {silent[0]}{more}: they did not train, or sent none")
    return np.array([np.nan if v is None else v for v in values], dtype=np.float64)


def _only(cohort: Cohort, some: NDArray[np.bool_]) -> Cohort:
    """Some clients of a cohort."""
    if some.all():
        return cohort
    values = {f.name: getattr(cohort, f.name) for f in dataclasses.fields(cohort)}
    changes = {
        name: value[np.ix_(some, some)] if value.ndim == 2 else value[some]
        for name, value in values.items()
        if isinstance(value, np.ndarray)
    }
    return cohort.replace(**changes)


def _compared(alpha: Array, applied: Array) -> dict[str, Any]:
    """The weights, how far they are from those that were applied (total variation), and their diagnostics."""
    squares = math.fsum((alpha**2).tolist())
    return {
        "alpha": alpha.tolist(),
        "distance": math.fsum(np.abs(alpha - applied).tolist()) / 2,
        "effective_clients": 1 / squares if squares > 0 else None,
        "heaviest": float(alpha.max()),
    }
