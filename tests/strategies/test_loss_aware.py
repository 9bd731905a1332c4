"""Which loss the loss-aware rules look at, and which optima they subtract."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cohorts import weights
from fedalpha.strategies import Cohort, FedAvg, FedBetter, FedSoftWorse, strategy

LN2, LN3 = math.log(2), math.log(3)


@pytest.mark.parametrize(("loss", "winner"), [("before", 0), ("train", 1), ("after", 2)])
@pytest.mark.parametrize("name", ["FedWorse", "FedSoftWorse", "FedBetter", "FedSoftBetter"])
def test_each_loss_is_the_one_that_was_asked_for(name: str, loss: str, winner: int) -> None:
    high = np.eye(3) if name.endswith("Worse") else 1 - np.eye(3)
    members = Cohort(ids=np.arange(3), sizes=np.ones(3), before=high[0], train=high[1], after=high[2])
    rule = strategy(f"{name}(loss={loss})")
    assert rule.requires == {loss}
    assert rule.weights(rule.init(3), members)[0].argmax() == winner


def test_before_is_the_default_loss() -> None:
    assert FedSoftWorse().requires == FedBetter().requires == {"before"}
    assert FedAvg().requires == frozenset()


def test_known_optima_are_subtracted() -> None:
    # x = (0, ln 2) though the raw losses are equal, or ordered the other way
    assert weights("FedSoftWorse(T=1)", [3, 3], [1, 1], optima=[3, 3 - LN2]) == pytest.approx([1 / 3, 2 / 3])
    assert weights("FedWorse", [5, 1], [1, 1], optima=[5, 0]) == [0, 1]
    assert weights("FedBetter", [5, 1], [1, 1], optima=[5, 0]) == [1, 0]
    assert weights("FedAvg", [5, 1], [1, 1], optima=[5, 0]) == [0.5, 0.5]


def test_estimated_optima_are_the_lowest_losses_so_far() -> None:
    rule = strategy("FedSoftWorse(T=1, optima=estimated)")

    def play(state, ids: list[int], losses: list[float]):
        return rule.weights(state, Cohort(ids=ids, sizes=np.ones(len(ids)), before=losses, optima=np.full(len(ids), 9)))

    alpha, first = play(rule.init(None), [7, 3], [5.0, 1.0])
    assert alpha.tolist() == [0.5, 0.5]  # nobody has an excess in its first round
    alpha, second = play(first, [3, 7], [1.0, 5.0 + LN2])
    assert alpha == pytest.approx([1 / 3, 2 / 3])  # 7 was at 5
    alpha, third = play(second, [5, 3], [100.0, 0.5])
    assert alpha.tolist() == [0.5, 0.5]  # 5 is new, 3 improved
    alpha, fourth = play(third, [3, 5, 7], [0.5 + LN3, 100.0, 5.0])
    assert alpha == pytest.approx([3 / 5, 1 / 5, 1 / 5])  # 3 is judged by 0.5 now
    assert fourth["ids"].tolist() == [3, 5, 7]
    assert fourth["values"].tolist() == [0.5, 100.0, 5.0]
    assert first["ids"].tolist() == [3, 7]  # old states stay as they were


def test_an_excess_beyond_float64_is_refused() -> None:
    with pytest.raises(ValueError, match="overflows float64; rescale"):
        weights("FedSoftWorse", [1.7e308, 0], optima=[-1.7e308, 0])
    rule = FedSoftWorse(optima="estimated")
    low, high = (Cohort(ids=[0, 1], sizes=[1, 1], before=[b, 0.0]) for b in (-1.7e308, 1.7e308))
    _, state = rule.weights(rule.init(2), low)
    with pytest.raises(ValueError, match="overflows float64; rescale"):
        rule.weights(state, high)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FedWorse(loss=during)", "loss = 'during' is not one of before, train, after"),
        ("FedSoftBetter(optima=guessed)", "optima = 'guessed' is not one of known, estimated"),
    ],
)
def test_bad_parameters_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        strategy(text)
