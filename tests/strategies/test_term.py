"""TERM is a name for the soft rules."""

from __future__ import annotations

import pytest

from fedalpha.strategies import STRATEGIES, FedAvg, FedSoftWorse, strategy


def test_term_is_a_name_for_the_soft_rules() -> None:
    assert strategy("TERM(t=5)") == FedSoftWorse(T=0.2)
    assert strategy("TERM(t=-0.5)") == strategy("FedSoftBetter(T=2)")
    assert strategy("TERM(t=0)") == FedAvg()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("TERM(t=inf)", "t = inf; give a number"),
    ],
)
def test_bad_arguments_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        STRATEGIES.parse(text)
