"""The strategy that changes by itself."""

from __future__ import annotations

import pytest

import fedalpha
from cohorts import rounds
from fedalpha.data import Pooled
from fedalpha.strategies import STRATEGIES, strategy


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
    history = fedalpha.run(digits, "mlp", rule, rounds=6, engine="embedded(workers=1)")
    assert "validation_accuracy" not in history.rows[-1]
    assert history.accuracy[-1] > history.accuracy[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("adaptive(FedAvg)", "one rule given"),
        ("adaptive(window=0)", "window = 0"),
        ("adaptive(drop=2)", "drop = 2"),
    ],
)
def test_bad_arguments_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        STRATEGIES.parse(text)
