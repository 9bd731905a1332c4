"""FedLean: the temperature keeps its promise, and noise alone changes nothing."""

from __future__ import annotations

import numpy as np
import pytest

from fedalpha import strategy, weights

RANDOM = np.random.default_rng(0)


def test_the_effective_clients_are_those_that_were_asked_for() -> None:
    for _ in range(50):
        n = int(RANDOM.integers(3, 12))
        sizes, losses = RANDOM.integers(100, 1000, n), RANDOM.exponential(size=n)
        p = sizes / sizes.sum()
        alpha = weights("FedLean(share=0.7)", losses, sizes)
        kept = 1 / (alpha**2 / p).sum()
        mean = (p * losses).sum()
        V = (p * (losses - mean) ** 2).sum()
        S = max(0.0, V - (p * mean**2 / sizes).sum())
        assert kept == pytest.approx(0.7 ** (S / V), abs=1e-9)
        order = np.argsort((losses - mean) * S / (S + mean**2 / sizes))
        assert (np.diff((alpha / p)[order]) >= -1e-12).all()  # the larger the shrunk loss, the larger alpha/p


def test_differences_that_noise_explains_change_nothing() -> None:
    np.testing.assert_array_equal(weights("FedLean", [1.0, 1.2, 0.9], [4, 4, 4]), np.full(3, 1 / 3))


def test_the_unit_of_losses_does_not_matter() -> None:
    losses, sizes = np.array([0.3, 1.0, 0.5]), [300, 500, 200]
    np.testing.assert_allclose(weights("FedLean", 1000 * losses, sizes), weights("FedLean", losses, sizes), rtol=1e-9)


@pytest.mark.parametrize(("text", "message"), [("FedLean(share=2)", "share = 2"), ("FedLean(loss=gram)", "loss")])
def test_wrong_parameters_are_explained(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        strategy(text)
