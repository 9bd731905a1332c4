"""`cool` keeps its promise."""

from __future__ import annotations

import numpy as np
import pytest

from fedalpha import strategy, weights

RANDOM = np.random.default_rng(0)


def cases(n: int = 100):
    for _ in range(n):
        m = int(RANDOM.integers(1, 9))
        yield RANDOM.integers(1, 100, m), RANDOM.exponential(size=m), int(RANDOM.integers(0, 1000))


def test_cool_keeps_the_ratio_within_its_limit() -> None:
    for sizes, losses, r in cases():
        for text in ("cool(FedSoftWorse(T=0), c=3, a=0.5)", "cool(FedSoftBetter(T=0.1), c=3, a=0.5)"):
            kappa = weights(text, losses, sizes, round=r) / (sizes / sizes.sum())
            assert kappa.max() / kappa.min() <= (1 + 3 * (r + 1) ** -0.5) * (1 + 1e-9)
    assert weights("cool(FedSoftWorse(T=1))", [0, 0.1]) == pytest.approx(weights("FedSoftWorse(T=1)", [0, 0.1]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cool(FedWorse)", "has no temperature"),
    ],
)
def test_wrong_parameters_are_explained(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        strategy(text)
