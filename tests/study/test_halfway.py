"""States on the way that pass from one strategy to another."""

from __future__ import annotations

from typing import Any

from fedalpha.strategies import STRATEGIES, Cohort, State, Strategy
from fedalpha.strategies.switch import Switch
from fedalpha.study.halfway import adopted


class Remembering(Strategy):
    """Its state begins with a number per client."""

    def init(self, n: int | None) -> dict[str, Any]:
        return {"seen": [0.0] * (n or 0)}

    def weights(self, state: State, cohort: Cohort) -> tuple[Any, State]:
        raise NotImplementedError  # nobody plays it here


def test_a_rule_that_has_not_played_yet_begins_as_in_a_run_of_its_own() -> None:
    average = STRATEGIES.parse("FedAvg")
    hybrid = Switch((average, Remembering()), at=(3,))
    found = adopted(average, average.init(5), hybrid, 3, clients=5)
    assert found == {"members": [{}, {"seen": [0.0] * 5}], "stage": 0}
    assert found["members"] == hybrid.init(5)["members"]
