"""The paper's hybrids by name, with its T and rounds."""

from __future__ import annotations

import pytest

import fedalpha
from fedalpha import strategy


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("FedSoftBetterAvg", "switch(FedSoftBetter(T=0.2), FedAvg, at=20)"),
        ("FedSoftWorseAvg", "switch(FedSoftWorse(T=0.2), FedAvg, at=20)"),
        ("FedAvgSoftWorse", "switch(FedAvg, FedSoftWorse(T=0.2), at=20)"),
        ("FedAvgSoftBetter", "switch(FedAvg, FedSoftBetter(T=0.2), at=20)"),
        ("FedSoftBetterAvgSoftWorse", "switch(FedSoftBetter(T=0.2), FedAvg, FedSoftWorse(T=0.2), at=[15, 30])"),
    ],
)
def test_names_and_defaults(name: str, written: str) -> None:
    assert str(strategy(name)) == written
    assert strategy(name) == strategy(written) == strategy(f"{name}()")
    assert hash(strategy(name)) == hash(strategy(written))


def test_arguments() -> None:
    assert str(strategy("FedSoftBetterAvg(T=1/15, at=7)")) == f"switch(FedSoftBetter(T={1 / 15}), FedAvg, at=7)"
    assert strategy("FedSoftBetterAvg(0.5, 3)") == strategy("FedSoftBetterAvg(T=0.5, at=3)")
    both = "FedSoftBetter(T=0.2, prior=uniform, loss=train), FedAvg(prior=uniform)"
    assert str(strategy("FedSoftBetterAvg(prior=uniform, loss=train)")) == f"switch({both}, at=20)"
    three = strategy("FedSoftBetterAvgSoftWorse(T=1, at=[5, 6])")
    assert str(three) == "switch(FedSoftBetter(T=1.0), FedAvg, FedSoftWorse(T=1.0), at=[5, 6])"


def test_accuracy_takes_the_place_of_the_rounds() -> None:
    assert str(strategy("FedSoftBetterAvg(accuracy=0.6)")) == "switch(FedSoftBetter(T=0.2), FedAvg, accuracy=0.6)"
    two = strategy("FedSoftBetterAvgSoftWorse(accuracy=[0.6, 0.8])")
    assert str(two) == "switch(FedSoftBetter(T=0.2), FedAvg, FedSoftWorse(T=0.2), accuracy=[0.6, 0.8])"
    with pytest.raises(ValueError, match=r"either at= .* or accuracy="):
        strategy("FedSoftBetterAvg(at=20, accuracy=0.6)")
    with pytest.raises(ValueError, match=r"3 rules need 2 change\(s\), but accuracy has 1"):
        strategy("FedSoftBetterAvgSoftWorse(accuracy=0.6)")


@pytest.mark.parametrize(
    ("round", "rule"),
    [
        (0, "FedSoftBetter(T=0.2)"),
        (14, "FedSoftBetter(T=0.2)"),
        (15, "FedAvg"),
        (29, "FedAvg"),
        (30, "FedSoftWorse(T=0.2)"),
        (150, "FedSoftWorse(T=0.2)"),
    ],
)
def test_the_three_stages(round: int, rule: str) -> None:
    hybrid = fedalpha.weights("FedSoftBetterAvgSoftWorse", [0.1, 0.4], [3, 1], round=round)
    assert hybrid.tolist() == fedalpha.weights(rule, [0.1, 0.4], [3, 1]).tolist()
