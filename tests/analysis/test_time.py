"""Measures against simulated time, by hand."""

from __future__ import annotations

import pytest

from fedalpha.analysis.measures import Curve, Measure, Measured

RUN = Curve.of({"accuracy": [0.1, 0.5, 0.4, 0.7], "time": [0.0, 2.0, 3.0, 10.0], "loss": [2.0, 1.0, 1.1, 0.5]}, 3)


def value(text: str, run: Curve = RUN) -> Measured | None:
    return Measure.parse(text).of(run)


def test_values_by_hand() -> None:
    assert value("T_50") == Measured(2.0)
    assert value("T_60") == Measured(10.0)
    assert value("T_90") == Measured(10.0, reached=False)
    assert value("accuracy@2s") == Measured(0.5)
    assert value("accuracy@9.9s") == Measured(0.4)
    assert value("loss@10s") == Measured(0.5)
    assert value("accuracy@11s") is None  # the run ended before
    area = value("auc@5s")
    assert area is not None
    assert area.value == pytest.approx((0.1 * 2 + 0.5 * 1 + 0.4 * 2) / 5)
    fall = value("fall@5s")
    assert fall is not None
    assert fall.value == pytest.approx(0.1 / 5)


def test_runs_without_simulated_time_have_no_value() -> None:
    plain = Curve.of({"accuracy": [0.1, 0.5]}, 1)
    assert value("T_50", plain) is None
    assert value("accuracy@1s", plain) is None


@pytest.mark.parametrize(
    "text", ["T_60", "T_62.5", "accuracy@100s", "worst_tenth_accuracy@0.5s", "auc@10s", "fall@10s"]
)
def test_measures_read_back(text: str) -> None:
    assert Measure.parse(text).text == text


@pytest.mark.parametrize("text", ["T_0", "accuracy@0s", "steps@10s", "auc@s"])
def test_bad_measures_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="measure"):
        Measure.parse(text)
