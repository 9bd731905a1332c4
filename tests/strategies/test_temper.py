"""`temper` keeps its promise."""

from __future__ import annotations

import numpy as np
import pytest

from fedalpha import strategy, weights

RANDOM = np.random.default_rng(0)


def cases(n: int = 100):
    for _ in range(n):
        m = int(RANDOM.integers(1, 9))
        yield RANDOM.integers(1, 100, m), RANDOM.exponential(size=m), int(RANDOM.integers(0, 1000))


def test_temper_keeps_every_kappa_above_pi() -> None:
    for sizes, losses, r in cases():
        for text in ("temper(FedSoftWorse(T=0), 0.3)", "temper(FedSoftBetter(T=0.1), 0.3)"):
            kappa = weights(text, losses, sizes, round=r) / (sizes / sizes.sum())
            assert kappa.min() >= 0.3 * (1 - 1e-9)
            assert kappa.max() <= (1 + 1e-9) / 0.3
    assert weights("temper(FedSoftWorse(T=9), 0.3)", [0, 1]) == pytest.approx(weights("FedSoftWorse(T=9)", [0, 1]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("temper(FedSoftWorse, 1)", "pi = 1; give a number above 0 and below 1"),
    ],
)
def test_wrong_parameters_are_explained(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        strategy(text)


def test_numbers_are_one_text() -> None:
    assert str(strategy("temper(FedSoftWorse(T=0), 1/2)")) == "temper(FedSoftWorse(T=0.0), pi=0.5)"
