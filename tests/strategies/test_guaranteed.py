"""The combinators with guarantees, by hand-computed weights and by what they promise."""

from __future__ import annotations

import numpy as np
import pytest

from fedalpha import strategy, weights

RANDOM = np.random.default_rng(0)


def cases(n: int = 100):
    for _ in range(n):
        m = int(RANDOM.integers(1, 9))
        yield RANDOM.integers(1, 100, m), RANDOM.exponential(size=m), int(RANDOM.integers(0, 1000))


def test_fade_by_hand() -> None:
    assert weights("fade(FedWorse)", [2, 1], round=0) == pytest.approx([1, 0])
    assert weights("fade(FedWorse)", [2, 1], round=3) == pytest.approx([0.625, 0.375])  # ε = 1/4
    assert weights("fade(FedWorse, c=2, a=0.5, gamma=4)", [2, 1], [3, 1], round=12) == pytest.approx([0.875, 0.125])


def test_cool_keeps_the_ratio_within_its_limit() -> None:
    for sizes, losses, r in cases():
        for text in ("cool(FedSoftWorse(T=0), c=3, a=0.5)", "cool(FedSoftBetter(T=0.1), c=3, a=0.5)"):
            kappa = weights(text, losses, sizes, round=r) / (sizes / sizes.sum())
            assert kappa.max() / kappa.min() <= (1 + 3 * (r + 1) ** -0.5) * (1 + 1e-9)
    assert weights("cool(FedSoftWorse(T=1))", [0, 0.1]) == pytest.approx(weights("FedSoftWorse(T=1)", [0, 0.1]))


def test_temper_keeps_every_kappa_above_pi() -> None:
    for sizes, losses, r in cases():
        for text in ("temper(FedSoftWorse(T=0), 0.3)", "temper(FedSoftBetter(T=0.1), 0.3)"):
            kappa = weights(text, losses, sizes, round=r) / (sizes / sizes.sum())
            assert kappa.min() >= 0.3 * (1 - 1e-9)
            assert kappa.max() <= (1 + 1e-9) / 0.3
    assert weights("temper(FedSoftWorse(T=9), 0.3)", [0, 1]) == pytest.approx(weights("FedSoftWorse(T=9)", [0, 1]))


def test_steady_keeps_a_share_of_the_effective_clients() -> None:
    for sizes, losses, _ in cases():
        p = sizes / sizes.sum()
        for text, share in (("FedWorse", 0.5), ("FedSoftBetter(T=0.1)", 0.9), ("FedWorse(k=2)", 1.0)):
            alpha = weights(f"steady({text}, {share})", losses, sizes)
            assert 1 / np.square(alpha).sum() >= share / np.square(p).sum() * (1 - 1e-9)
            rule = weights(text, losses, sizes)
            if np.square(rule).sum() <= np.square(p).sum() / share:
                assert alpha == pytest.approx(rule)  # no more caution than needed


def test_per_step_restores_the_rule_as_effective_weights() -> None:
    for sizes, losses, _ in cases():
        steps = RANDOM.integers(1, 20, len(sizes))
        effective = weights("per_step(FedSoftWorse(T=1))", losses, sizes, steps=steps) * steps
        assert effective / effective.sum() == pytest.approx(weights("FedSoftWorse(T=1)", losses, sizes))
    assert weights("per_step(FedAvg)", [1, 1, 1], steps=[0, 2, 4]) == pytest.approx([0, 2 / 3, 1 / 3])
    assert weights("per_step(FedAvg)", [1, 1], steps=[0, 0]) == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fade(FedWorse, a=2)", "a = 2; give a number above 0 and at most 1"),
        ("fade(FedWorse, c=0)", "c = 0; give a number above 0"),
        ("cool(FedWorse)", "has no temperature"),
        ("temper(FedSoftWorse, 1)", "pi = 1; give a number above 0 and below 1"),
        ("steady(FedWorse, 0)", "share = 0"),
    ],
)
def test_wrong_parameters_are_explained(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        strategy(text)


def test_numbers_are_one_text() -> None:
    assert strategy("fade(FedWorse, c=5)") == strategy("fade(FedWorse, c=5.0)")
    assert str(strategy("temper(FedSoftWorse(T=0), 1/2)")) == "temper(FedSoftWorse(T=0.0), pi=0.5)"
