"""FedExP: the server step of the paper, by vectors."""

from __future__ import annotations

import numpy as np
import pytest

import fedalpha
from fedalpha.data import Pooled
from fedalpha.strategies import STRATEGIES


def test_the_step_by_vectors() -> None:
    rng = np.random.default_rng(0)
    longer = 0
    for _ in range(30):
        moves, sizes = rng.normal(size=(5, 20)), rng.integers(1, 9, size=5)
        p = sizes / sizes.sum()
        mean = sum(share * move for share, move in zip(p, moves, strict=True))
        alone = sum(share * (move**2).sum() for share, move in zip(p, moves, strict=True))
        eta = max(1.0, alone / (2 * ((mean**2).sum() + 0.01)))
        longer += eta > 1
        found = fedalpha.weights("FedExP(epsilon=0.01)", np.zeros(5), sizes, gram=moves @ moves.T)
        np.testing.assert_allclose(found, eta * p, rtol=1e-9)
    assert longer > 20


def test_equal_updates_are_averaged(digits: Pooled) -> None:
    np.testing.assert_allclose(fedalpha.weights("FedExP", [0, 0], [1, 3], gram=np.ones((2, 2))), [0.25, 0.75])
    history = fedalpha.run(digits, "mlp", "FedExP", rounds=2, engine="embedded(workers=1)")
    assert sum(history.rows[1]["alpha"]) > 1  # clients with different digits disagree
    with pytest.raises(ValueError, match="epsilon = -1"):
        STRATEGIES.parse("FedExP(epsilon=-1)")
