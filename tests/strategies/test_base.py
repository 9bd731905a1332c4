"""What the checks around a strategy say."""

from __future__ import annotations

from typing import Any

import pytest

from fedalpha.round import Algorithm
from fedalpha.strategies import Cohort, Need, Strategy, weigh


class Careless(Strategy):
    """Reads losses that it does not declare."""

    def weights(self, state: Any, cohort: Cohort) -> tuple[Any, Any]:
        return cohort.before / cohort.before.sum(), state  # type: ignore[operator,union-attr]


class Broken(Strategy):
    @property
    def requires(self) -> frozenset[Need]:
        return frozenset({"before"})

    def weights(self, state: Any, cohort: Cohort) -> tuple[Any, Any]:
        return cohort.before + "no number", state  # type: ignore[operator]


def test_a_rule_that_reads_what_it_does_not_declare_is_told_so() -> None:
    with pytest.raises(ValueError, match=r"Careless reads cohort\.before.*add 'before' to its `requires`"):
        weigh(Careless(), {}, Cohort(ids=[0, 1], sizes=[1, 2]))  # type: ignore[arg-type]


def test_another_mistake_keeps_its_own_error() -> None:
    with pytest.raises(TypeError):
        weigh(Broken(), {}, Cohort(ids=[0, 1], sizes=[1, 2], before=[0.1, 0.2]))  # type: ignore[arg-type]


class Misspelt(Strategy):
    @property
    def requires(self) -> frozenset[Need]:
        return frozenset({"befor"})  # type: ignore[arg-type]

    def weights(self, state: Any, cohort: Cohort) -> tuple[Any, Any]:
        return cohort.sizes / cohort.sizes.sum(), state


def test_a_rule_that_requires_what_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="`requires` names 'befor'; did you mean 'before'"):
        Algorithm(weigh=Misspelt())
