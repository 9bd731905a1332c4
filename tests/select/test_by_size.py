"""Sampling by size: the chances are what they say, and weights p/π are unbiased."""

from __future__ import annotations

import numpy as np
import pytest

import fedalpha
from fedalpha.data import Pooled
from fedalpha.select import SELECTIONS
from fedalpha.select.by_size import inclusion, systematic


def test_chances_sum_to_the_number_of_places() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        sizes = rng.lognormal(0, 2, int(rng.integers(2, 30)))
        count = int(rng.integers(1, len(sizes) + 1))
        chances = inclusion(sizes, count)
        assert chances.sum() == pytest.approx(count, rel=1e-12)
        assert (chances > 0).all()
        assert (chances <= 1).all()
        some = chances < 1
        np.testing.assert_allclose(chances[some] / sizes[some], (chances[some] / sizes[some])[:1].repeat(some.sum()))
        weights = sizes / sizes.sum() / chances
        for _ in range(3):
            drawn = systematic(chances, rng)
            assert len(drawn) == len(set(drawn.tolist())) == count
            assert weights[drawn].sum() == pytest.approx(1, rel=1e-9)  # Horvitz–Thompson weights on the simplex


def test_clients_are_drawn_as_often_as_their_chances_say() -> None:
    sizes, rng = np.array([50.0, 20, 10, 10, 5, 5]), np.random.default_rng(1)
    chances, draws = inclusion(sizes, 3), 4000
    found = np.zeros(6)
    for _ in range(draws):
        found[systematic(chances, rng)] += 1
    np.testing.assert_allclose(found / draws, chances, atol=5 * np.sqrt(0.25 / draws))


def test_unbiased_weights_in_a_run(digits: Pooled) -> None:
    same = {"rounds": 3, "seed": 1, "engine": "embedded(workers=1)"}
    history = fedalpha.run(digits, "mlp", "unbiased(FedAvg)", select="by_size(C=0.5)", **same)
    sizes = digits.sizes(np.arange(digits.clients))
    expected = sizes / sizes.sum() / inclusion(sizes, digits.clients // 2)
    for row in history.rows[1:]:
        np.testing.assert_allclose(row["alpha"], expected[row["cohort"]], rtol=1e-9)
        assert sum(row["alpha"]) == pytest.approx(1, rel=1e-9)
    plain = fedalpha.run(digits, "mlp", "unbiased(FedAvg)", select="uniform(C=0.5)", **same)
    for row in plain.rows[1:]:
        shares = sizes[row["cohort"]] / sizes.sum() * digits.clients / (digits.clients // 2)
        np.testing.assert_allclose(row["alpha"], shares, rtol=1e-9)


def test_selections_without_known_chances_are_refused(digits: Pooled) -> None:
    for select in ("power_of_choice(C=0.5)", "fedpage(C=0.5)", "loss_proportional(C=0.5)"):
        with pytest.raises(ValueError, match=r"the chances of .* are not known"):
            fedalpha.run(digits, "mlp", "unbiased(FedAvg)", select=select, rounds=1, engine="embedded(workers=1)")
    assert str(SELECTIONS.parse("by_size(count=3)")) == "by_size(count=3)"
