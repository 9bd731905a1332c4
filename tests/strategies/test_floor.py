"""`floor` by hand."""

from __future__ import annotations

import pytest

from cohorts import weights
from fedalpha.strategies import (
    strategy,
)


def test_floor_by_hand() -> None:
    assert weights("floor(FedWorse, 0.5)", [2, 1, 0], [2, 1, 1]) == [0.75, 0.125, 0.125]
    assert weights("floor(FedWorse, 0)", [2, 1], [1, 3]) == [1, 0]
    assert weights("floor(FedWorse, 1)", [2, 1], [1, 3]) == [0.25, 0.75]
    assert weights("floor(FedBetter, pi=0.2)", [2, 1], [1, 1]) == pytest.approx([0.1, 0.9], rel=1e-15)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("floor(FedAvg, -0.1)", r"pi = -0.1; give a share in \[0, 1\]"),
        ("floor(FedAvg, 2)", "pi = 2; give a share"),
        ("floor(FedAvg, FedAvg)", "pi = FedAvg; give a share"),
    ],
)
def test_bad_arguments_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        strategy(text)
