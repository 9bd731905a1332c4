"""What a run looks at besides training: when to stop, which model to keep, and what other rules would have weighed.

The same object serves simulations and live federations. It is pure: its state is part of the server's state, saved and
resumed with it, so a resumed run stops at the same round with the same best model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fedalpha.analysis.columns import columns, finite
from fedalpha.analysis.conditions import Condition, condition
from fedalpha.round import Algorithm
from fedalpha.round.shadow import Shadows
from fedalpha.strategies import STRATEGIES, State, Strategy

_ON_VALIDATION = {"accuracy": "validation_accuracy", "loss": "validation_loss"}
_HIGHER = {"accuracy": True, "loss": False}


@dataclass(frozen=True)
class Watch:
    """``stop``: the condition under which a run stops early. ``keep``: "last", or "best" ("best(loss)") to keep also
    the model with the best accuracy (or loss). ``shadow``: strategies whose weights are recorded but not applied.

    ``signal`` names the data at which ``stop``, ``keep`` and rules may look: validation, or test. A run that stops or
    keeps by the test set says so, because its test figures are then optimistic. "evaluation" is what a live federation
    measures in each round.
    """

    signal: str = "validation"
    stop: str | Condition | None = None
    keep: str = "last"
    shadow: Sequence[str | Strategy] = ()
    condition: Condition | None = field(init=False)
    by: str | None = field(init=False)
    """The column by which the best model is kept: accuracy or loss."""
    shadows: Shadows = field(init=False)

    def __post_init__(self) -> None:
        shadow = [self.shadow] if isinstance(self.shadow, str | Strategy) else self.shadow
        object.__setattr__(self, "condition", None if self.stop is None else condition(self.stop))
        object.__setattr__(self, "by", _kept(self.keep))
        object.__setattr__(self, "shadows", Shadows(tuple(STRATEGIES.parse(rule) for rule in shadow)))
        if self.signal == "validation" and self.condition is not None:
            tested = {found.name for found in columns() if found.tested} - _ON_VALIDATION.keys()
            if wrong := sorted(self.condition.columns & tested):
                raise ValueError(
                    f"stop = {str(self.condition)!r}: {wrong[0]} is measured on the test set; stop by accuracy or "
                    "loss, or set signal=test to let the run look at the test set"
                )

    @cached_property
    def looks(self) -> frozenset[str]:
        """What ``stop`` and ``keep`` read of the signal: accuracy, loss, or columns of the test set."""
        read = frozenset() if self.condition is None else self.condition.columns
        return (read & {found.name for found in columns() if found.tested}) | ({self.by} if self.by else frozenset())

    @property
    def weighs_by_accuracy(self) -> bool:
        """Whether a shadow rule looks at the signal's accuracy."""
        return "accuracy" in self.shadows.requires

    def check(self, algorithm: Algorithm, accuracy: bool) -> None:
        """Raise ValueError for what this run cannot provide; ``accuracy``: whether the task has one."""
        scored = {found.name for found in columns() if found.scored}
        if not accuracy and (wrong := sorted(self.looks - scored - {"loss"})):
            raise ValueError(
                f"stop or keep looks at {wrong[0]}, but the task has no accuracy (correct=None); "
                'use the loss: stop="patience(loss, rounds=5)", keep="best(loss)"'
            )
        self.shadows.check(algorithm)

    def init(self, clients: int | None) -> State:
        """The state before round 0; empty if nothing has to be remembered."""
        return {"shadow": self.shadows.init(clients)} if self.shadows.rules else {}

    def best(self, state: State, round: int, model: Any, accuracy: float | None, loss: float | None) -> State:
        """The next state: with this model if it is the best so far on the signal. Of two equals the earlier is kept."""
        if self.by is None:
            return state
        value = finite(accuracy if self.by == "accuracy" else loss)
        known = state.get("best")
        if known is not None:
            before = known["value"]
            if value is None or (before is not None and not _improves(self.by, value, before)):
                return state
        return {**state, "best": {"round": round, "value": value, "model": model}}

    def stopped(self, rows: Sequence[Mapping[str, Any]]) -> str | None:
        """Why the run stops after the last of ``rows``, and by which data; None if it continues."""
        names = _ON_VALIDATION if self.signal == "validation" else None
        if self.condition is None or not self.condition.holds(rows, names):
            return None
        if not self.looks & self.condition.columns:
            return str(self.condition)
        return f"{self.condition} ({self.data})"

    @property
    def data(self) -> str:
        """The signal in words."""
        if self.signal == "validation":
            return "on the validation part"
        if self.signal == "evaluation":
            return "in the evaluation of each round; figures on the same data are optimistic"
        return "on the test set, so the test figures of this model are optimistic"

    @property
    def settings(self) -> dict[str, Any]:
        """What was asked for, as JSON; empty by default."""
        found: dict[str, Any] = {}
        if self.condition is not None:
            found["stop"] = str(self.condition)
        if self.by is not None:
            found["keep"] = f"best({self.by})"
        if self.shadows.rules:
            found["shadow"] = [str(rule) for rule in self.shadows.rules]
        return found


def _kept(text: str) -> str | None:
    match = re.fullmatch(r"(last)|best(?:\((accuracy|loss)\))?", text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"keep = {text!r} is not one of last, best, best(accuracy), best(loss)")
    return None if match[1] else match[2] or "accuracy"


def _improves(by: str, value: float, before: float) -> bool:
    return value > before if _HIGHER[by] else value < before
