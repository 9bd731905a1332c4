"""Rules check the rules beside them, and those inside them do so too."""

from __future__ import annotations

from typing import Any

import pytest

from fedalpha.combine import Combine, clip, nnm
from fedalpha.round import Algorithm
from fedalpha.strategies import Array, Cohort, State, Strategy, adaptive, cap, floor, mix, switch
from fedalpha.strategies.plug_point import AnyAlgorithm


class Particular(Strategy):
    """A strategy that takes no server which weighs clients again."""

    def check(self, algorithm: AnyAlgorithm) -> None:
        if algorithm.reevaluate:
            raise ValueError("Particular: weighs nobody again")

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        return cohort.prior("size"), state


@pytest.mark.parametrize(
    "rule",
    [
        Particular(),
        cap(Particular(), 0.5),
        mix("FedAvg", floor(Particular(), 0.1)),
        switch("FedAvg", Particular(), at=3),
        adaptive("FedAvg", Particular()),
    ],
    ids=str,
)
def test_a_strategy_inside_others_is_asked(rule: Strategy) -> None:
    Algorithm(weigh=rule)
    with pytest.raises(ValueError, match="weighs nobody again"):
        Algorithm(weigh=rule, reevaluate=1)


class Fussy(Combine):
    """A combine rule that wants to be alone."""

    def check(self, algorithm: AnyAlgorithm) -> None:
        if algorithm.combine is not self:
            raise ValueError("Fussy: alone, please")

    def combine(self, state: Any, broadcast: Any, reports: Any, alpha: Any, simplex: Any) -> Any:
        raise NotImplementedError


def test_a_combine_rule_inside_another_is_asked() -> None:
    Algorithm(combine=Fussy())
    for outer in (clip(Fussy()), nnm(Fussy()), clip(nnm(Fussy()))):
        with pytest.raises(ValueError, match="alone, please"):
            Algorithm(combine=outer)
