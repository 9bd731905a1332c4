"""`aligned` goes as far as the updates agree, and no further."""

from __future__ import annotations

import numpy as np
import pytest

from fedalpha import strategy, weights

RANDOM = np.random.default_rng(0)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def test_the_update_keeps_its_cosine_with_fedavgs() -> None:
    limited = 0
    for _ in range(100):
        n = int(RANDOM.integers(2, 8))
        moves, losses, sizes = RANDOM.normal(size=(n, 20)) + 1.5, RANDOM.exponential(size=n), RANDOM.integers(1, 50, n)
        p, gram = sizes / sizes.sum(), moves @ moves.T
        rule = weights("FedWorse", losses, sizes)
        alpha = weights("aligned(FedWorse, 0.95)", losses, sizes, gram=gram)
        found = cosine(alpha @ moves, p @ moves)
        assert found >= 0.95 - 1e-9
        if cosine(rule @ moves, p @ moves) >= 0.95:
            np.testing.assert_allclose(alpha, rule)
        else:
            limited += 1
            assert found == pytest.approx(0.95, abs=1e-6)
    assert limited > 10


def test_updates_that_cancel_leave_nothing_to_agree_with() -> None:
    alpha = weights("aligned(FedWorse, 0.9)", [2, 1], gram=[[1.0, -1.0], [-1.0, 1.0]])
    assert abs(alpha.sum() - 1) < 1e-12


def test_wrong_parameters_are_explained() -> None:
    with pytest.raises(ValueError, match=r"cosine = 1\.5"):
        strategy("aligned(FedWorse, 1.5)")
    with pytest.raises(ValueError, match="off the simplex"):
        strategy("aligned(qFedAvg)")
