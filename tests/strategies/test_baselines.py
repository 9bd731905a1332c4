"""Baselines by hand, FedNova on unequal local work, and the strategy that changes by itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import fedalpha
from fedalpha.data import Generated, Pooled
from fedalpha.strategies import STRATEGIES, Cohort, Strategy, strategy
from fedalpha.task import Task


def rounds(rule: Strategy, *losses: list[float], sizes: list[float] | None = None) -> list[np.ndarray]:
    """alpha of successive rounds with these losses."""
    state, found = rule.init(), []
    for values in losses:
        n = len(values)
        cohort = Cohort(np.arange(n), sizes or np.ones(n), before=values, train=values, after=values)
        alpha, state = rule.weights(state, cohort)
        found.append(alpha)
    return found


def test_fednolowe_by_hand() -> None:
    np.testing.assert_allclose(fedalpha.weights("FedNolowe", [1, 2, 5], [9, 1, 1]), [7 / 16, 6 / 16, 3 / 16])
    np.testing.assert_allclose(fedalpha.weights("FedNolowe", [0, 0, 0]), 1 / 3)
    assert fedalpha.weights("FedNolowe", [3]).tolist() == [1]


def test_fedcostwavg_by_hand() -> None:
    """Sizes 1, 3; losses 2, 2 then 1, 4: ratios 2 and ½."""
    first, second = rounds(strategy("FedCostWAvg(a=0.5)"), [2, 2], [1, 4], sizes=[1, 3])
    np.testing.assert_allclose(first, [0.375, 0.625])
    np.testing.assert_allclose(second, [0.5 * 0.25 + 0.5 * 0.8, 0.5 * 0.75 + 0.5 * 0.2])


def test_fedpidavg_by_hand() -> None:
    """Three rounds of two equal clients: d and I from the losses (4, 4), (2, 3), (2.5, 1)."""
    first, second, third = rounds(strategy("FedPIDAvg"), [4, 4], [2, 3], [2.5, 1])
    np.testing.assert_allclose(first, [0.5, 0.5])
    np.testing.assert_allclose(second, [0.225 + 0.45 * 2 / 3 + 0.1 * 6 / 13, 0.225 + 0.45 / 3 + 0.1 * 7 / 13])
    # The first loss rose (d = 0), so the second has all of b; I = 8.5 and 8.
    np.testing.assert_allclose(third, [0.225 + 0.1 * 8.5 / 16.5, 0.225 + 0.45 + 0.1 * 8 / 16.5])


def test_fedpidavg_forgets_what_is_older_than_its_memory() -> None:
    rule = strategy("FedPIDAvg(a=0, b=0, c=1, memory=1)")
    alphas = rounds(rule, [100, 1], [1, 1], [1, 3])
    np.testing.assert_allclose(alphas[1], [101 / 103, 2 / 103])
    np.testing.assert_allclose(alphas[2], [2 / 6, 4 / 6])


def test_fedpidavg_sums_the_present_loss_and_five_earlier_ones() -> None:
    """Ten rounds written out with a window of six, as in the public code that its docstring names."""
    losses = np.random.default_rng(0).uniform(0.5, 2, size=(10, 3))
    found = rounds(strategy("FedPIDAvg"), *losses.tolist(), sizes=[1, 2, 3])
    for t in range(1, 10):
        fall = np.maximum(losses[t - 1] - losses[t], 0)
        window = losses[max(0, t - 5) : t + 1].sum(axis=0)
        p = np.array([1, 2, 3]) / 6
        d = fall / fall.sum() if fall.sum() else p
        np.testing.assert_allclose(found[t], 0.45 * p + 0.45 * d + 0.1 * window / window.sum())


def test_fednova_by_hand() -> None:
    alpha = fedalpha.weights("FedNova", [0, 0], [1, 3], steps=[2, 4])  # τ_eff = 0.5 + 3 = 3.5
    np.testing.assert_allclose(alpha, [3.5 * 0.25 / 2, 3.5 * 0.75 / 4])
    one, two = fedalpha.weights("FedNova(momentum=0.5)", [0, 0], steps=[1, 2])  # ‖a‖₁ = 1 and 1 + 1.5
    np.testing.assert_allclose([one, two], [1.75 * 0.5 / 1, 1.75 * 0.5 / 2.5])


class Scalar(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w.expand(len(x), 1)


def test_fednova_is_unbiased_where_clients_take_different_numbers_of_steps() -> None:
    """Client 0 has 8 samples at +1, client 1 has 2 at −1, batches of 1: 8 and 2 steps; the optimum is 0.6."""

    def client(id: int) -> tuple[torch.Tensor, torch.Tensor]:
        n = (8, 2)[id]
        return torch.zeros(n, 1), torch.full((n, 1), (1.0, -1.0)[id])

    data = Generated(2, client, lambda ids: np.array([8.0, 2.0])[ids], client(0), classes=1)
    task = Task(loss=nn.functional.mse_loss, correct=None)
    same = {"rounds": 60, "update": "sgd(lr=0.005, batch=1)", "task": task, "workers": 1}
    ends = {s: fedalpha.run(data, Scalar, s, **same).model["w"].item() for s in ("FedAvg", "FedNova")}
    assert ends["FedNova"] == pytest.approx(0.6, abs=0.05)
    assert ends["FedAvg"] > 0.8  # near 8·8 − 2·2 over 8·8 + 2·2


def test_adaptive_changes_when_the_losses_level_off() -> None:
    rule = strategy("adaptive(FedSoftBetter(T=1), FedAvg, FedSoftWorse(T=1), window=2, drop=0.1, skew=0)")
    falling = [[8.0, 16.0], [4.0, 8.0], [2.0, 4.0], [1.9, 3.9], [1.9, 3.9], [1.9, 3.8], [1.9, 3.8], [1.9, 3.8]]
    alphas = rounds(rule, *falling)
    kinds = ["better" if a[0] > 0.5 else "worse" if a[0] < 0.5 else "avg" for a in alphas]
    assert kinds == ["better"] * 5 + ["avg"] * 3
    assert rounds(rule, *falling, *[[1.9, 3.8]] * 3)[-1][1] > 0.5  # at last the Worse family


def test_adaptive_leaves_a_rule_that_looks_away_from_the_loss() -> None:
    """FedBetter's ρ is x_min / mean x: 1/5.5 here, below ½."""
    first, second = rounds(strategy("adaptive(FedBetter, FedAvg)"), [1.0, 10.0], [1.0, 10.0])
    assert first.tolist() == [1, 0]
    assert second.tolist() == [0.5, 0.5]


def test_adaptive_needs_no_accuracy_and_runs(digits: Pooled) -> None:
    rule = strategy("adaptive")
    assert rule.requires == {"before"}
    history = fedalpha.run(digits, "mlp", rule, rounds=6, workers=1)
    assert "validation_accuracy" not in history.rows[-1]
    assert history.accuracy[-1] > history.accuracy[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FedPIDAvg(a=0.5)", "a .* sum to 1"),
        ("FedPIDAvg(memory=0)", "memory = 0"),
        ("FedCostWAvg(a=2)", r"a = 2; give a share in \[0, 1\]"),
        ("FedNolowe(loss=test)", "'test' is not one of before, train, after"),
        ("FedNova(momentum=1)", "momentum = 1"),
        ("adaptive(FedAvg)", "one rule given"),
        ("adaptive(window=0)", "window = 0"),
        ("adaptive(drop=2)", "drop = 2"),
    ],
)
def test_bad_arguments_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        STRATEGIES.parse(text)


def test_negative_losses_are_refused_where_sizes_are_compared() -> None:
    with pytest.raises(ValueError, match="FedNolowe needs losses ≥ 0"):
        fedalpha.weights("FedNolowe", [-1, 1])
