"""`per_step` restores the rule as effective weights."""

from __future__ import annotations

import numpy as np
import pytest

from fedalpha import weights

RANDOM = np.random.default_rng(0)


def cases(n: int = 100):
    for _ in range(n):
        m = int(RANDOM.integers(1, 9))
        yield RANDOM.integers(1, 100, m), RANDOM.exponential(size=m), int(RANDOM.integers(0, 1000))


def test_per_step_restores_the_rule_as_effective_weights() -> None:
    for sizes, losses, _ in cases():
        steps = RANDOM.integers(1, 20, len(sizes))
        effective = weights("per_step(FedSoftWorse(T=1))", losses, sizes, steps=steps) * steps
        assert effective / effective.sum() == pytest.approx(weights("FedSoftWorse(T=1)", losses, sizes))
    assert weights("per_step(FedAvg)", [1, 1, 1], steps=[0, 2, 4]) == pytest.approx([0, 2 / 3, 1 / 3])
    assert weights("per_step(FedAvg)", [1, 1], steps=[0, 0]) == pytest.approx([0.5, 0.5])
