"""Access of a rule to the other rules of its algorithm, so that it can refuse those with which it does not work."""

from __future__ import annotations

from typing import Any, Protocol


class AnyAlgorithm(Protocol):
    """An algorithm, for the checks of its rules: the five plug points, and the number of clients that are reevaluated.

    The types are those of `fedalpha.round.Algorithm`. They are Any here, as lower layers cannot import all of them.
    """

    @property
    def select(self) -> Any: ...
    @property
    def update(self) -> Any: ...
    @property
    def weigh(self) -> Any: ...
    @property
    def combine(self) -> Any: ...
    @property
    def apply(self) -> Any: ...
    @property
    def reevaluate(self) -> int: ...


class PlugPoint:
    """The methods that the rules of all plug points have."""

    @property
    def wants(self) -> frozenset[str]:
        """What a combine rule needs besides models: class counts (``labels``), the server's own data (``server``)."""
        return frozenset()

    @property
    def against_stale(self) -> str:
        """Why the rule does not work with updates of older versions of the model; empty if it does."""
        return ""

    @property
    def against_absence(self) -> str:
        """Why the rule does not work if times decide which clients take part; empty if it does."""
        return ""

    def check(self, algorithm: AnyAlgorithm) -> None:
        """Raise ValueError if the rule does not work in this algorithm. Rules with inner rules also check those."""
