"""FedCostWAvg by hand."""

from __future__ import annotations

import numpy as np
import pytest

from cohorts import rounds
from fedalpha.strategies import STRATEGIES, strategy


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
