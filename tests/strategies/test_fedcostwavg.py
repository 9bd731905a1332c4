"""FedCostWAvg by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fedalpha.strategies import STRATEGIES, Cohort, Strategy, strategy


def rounds(rule: Strategy, *losses: list[float], sizes: list[float] | None = None) -> list[np.ndarray]:
    """alpha of successive rounds with these losses."""
    state, found = rule.init(), []
    for values in losses:
        n = len(values)
        cohort = Cohort(np.arange(n), sizes or np.ones(n), before=values, train=values, after=values)
        alpha, state = rule.weights(state, cohort)
        found.append(alpha)
    return found


def test_fedcostwavg_by_hand() -> None:
    """Sizes 1, 3; losses 2, 2 then 1, 4: ratios 2 and ½."""
    first, second = rounds(strategy("FedCostWAvg(a=0.5)"), [2, 2], [1, 4], sizes=[1, 3])
    np.testing.assert_allclose(first, [0.375, 0.625])
    np.testing.assert_allclose(second, [0.5 * 0.25 + 0.5 * 0.8, 0.5 * 0.75 + 0.5 * 0.2])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FedCostWAvg(a=2)", r"a = 2; give a share in \[0, 1\]"),
    ],
)
def test_bad_arguments_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        STRATEGIES.parse(text)
