"""`steady` keeps its promise."""

from __future__ import annotations

import numpy as np
import pytest

from fedalpha import strategy, weights

RANDOM = np.random.default_rng(0)


def cases(n: int = 100):
    for _ in range(n):
        m = int(RANDOM.integers(1, 9))
        yield RANDOM.integers(1, 100, m), RANDOM.exponential(size=m), int(RANDOM.integers(0, 1000))


def test_steady_keeps_a_share_of_the_effective_clients() -> None:
    for sizes, losses, _ in cases():
        p = sizes / sizes.sum()
        for text, share in (("FedWorse", 0.5), ("FedSoftBetter(T=0.1)", 0.9), ("FedWorse(k=2)", 1.0)):
            alpha = weights(f"steady({text}, {share})", losses, sizes)
            assert 1 / np.square(alpha).sum() >= share / np.square(p).sum() * (1 - 1e-9)
            rule = weights(text, losses, sizes)
            if np.square(rule).sum() <= np.square(p).sum() / share:
                assert alpha == pytest.approx(rule)  # no more caution than needed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steady(FedWorse, 0)", "share = 0"),
    ],
)
def test_wrong_parameters_are_explained(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        strategy(text)
