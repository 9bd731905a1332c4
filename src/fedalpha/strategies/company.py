"""How a rule looks at the rules beside it, so that it can refuse company in which it would break its promise."""

from __future__ import annotations

from typing import Any, Protocol


class Company(Protocol):
    """An algorithm as its parts see it: the five plug points, and how many clients the server weighs again.

    The types are those of `fedalpha.round.Algorithm`; rules of a lower layer do not know them all.
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
    """What the rules of all five plug points can do."""

    def check(self, company: Company) -> None:
        """Raise ValueError if the rule would not keep its promise in this algorithm; rules that hold rules ask them."""
