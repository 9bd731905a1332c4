"""What combinators share: members, traits, and that nesting stays cheap."""

from __future__ import annotations

from fedalpha.strategies import (
    FedAvg,
    FedWorse,
    Strategy,
    Traits,
    cap,
    floor,
    mix,
    per_step,
    steady,
    strategy,
    switch,
)


class Given(Strategy):
    """A rule that returns the losses as they are, to feed combinators with chosen weights."""

    def weights(self, state, cohort):
        return cohort.before, state


class OffSimplex(Given):
    traits = Traits(simplex=False)


def test_traits_are_those_that_all_members_have() -> None:
    assert strategy("mix(FedWorse, FedAvg)").traits == Traits(shift_invariant=True, monotone=1)
    assert strategy("floor(FedSoftBetter, 0.1)").traits == Traits(shift_invariant=True, monotone=-1)
    assert strategy("switch(FedWorse, FedBetter, at=3)").traits == Traits(shift_invariant=True, monotone=None)
    assert strategy("mix(FedAvg, FedAvg)").traits.monotone == 0
    assert strategy("mix(FedAvg, FedWorse(optima=estimated))").traits.monotone is None
    assert mix(OffSimplex(), "FedAvg").traits == Traits(simplex=False, monotone=None)


def test_members_may_be_strategies_or_texts() -> None:
    assert switch(FedWorse(), FedAvg(), at=3) == switch("FedWorse", "FedAvg", at=3)
    assert cap(FedAvg(), 0.5) == cap("FedAvg", 0.5) == strategy("cap(FedAvg, c=0.5)")
    assert floor(cap("FedAvg", 0.5), 0.1) == strategy("floor(cap(FedAvg, 0.5), 0.1)")
    nested = "switch(anneal(FedWorse, FedAvg, rounds=5), mix(FedAvg, floor(FedBetter, pi=0.2)), at=9)"
    written = nested.replace("0.2))", "0.2), shares=[0.5, 0.5])")
    assert str(strategy(nested)) == written
    assert strategy(written) == strategy(nested)


def test_deep_nesting_asks_each_rule_a_few_times_only() -> None:
    """Three questions per level would be 3³⁰ questions to the innermost rule."""
    asked = []

    class Counted(Given):
        @property
        def traits(self) -> Traits:
            asked.append(self)
            return Traits(monotone=0)

    rule: Strategy = Counted()
    for depth in range(30):
        rule = (lambda r: cap(r, 0.9), lambda r: steady(r, 0.5), per_step)[depth % 3](rule)
    assert rule.traits == Traits(monotone=0)
    assert strategy(str(rule).replace("Counted", "FedAvg")).traits.simplex
    assert len(asked) <= 3
