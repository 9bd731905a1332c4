"""Nested combinators cost in proportion to their depth."""

from __future__ import annotations

import pytest

from fedalpha.strategies import STRATEGIES, FedAvg, Strategy, Traits


class Counted(FedAvg, name="Counted"):
    """FedAvg that counts who asks for its traits."""

    asked = 0

    @property
    def traits(self) -> Traits:
        Counted.asked += 1
        return super().traits


def wrap(name: str, rule: Strategy) -> Strategy:
    make = next(entry.make for entry in STRATEGIES if entry.name == name)
    arguments = {"cap": (0.5,), "floor": (0.1,), "steady": (0.5,), "switch": (FedAvg(),), "anneal": (FedAvg(),)}
    more = {"switch": {"at": 3}, "anneal": {"rounds": 3}}
    return make(rule, *arguments.get(name, ()), **more.get(name, {}))


@pytest.mark.parametrize("name", ["cap", "floor", "steady", "per_step", "fade", "switch", "anneal"])
def test_traits_are_asked_for_once_per_level(name: str) -> None:
    counts = []
    for depth in (2, 14):
        Counted.asked = 0
        rule: Strategy = Counted()
        for _ in range(depth):
            rule = wrap(name, rule)
        assert rule.traits.simplex
        assert rule.requires is not None
        counts.append(Counted.asked)
    assert counts[0] == counts[1] < 5
