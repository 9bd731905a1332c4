"""What is measured on a run, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedalpha.analysis.comparison import Summary, summarise
from fedalpha.analysis.measures import MEASURES, Curve, Measure, Measured, Until


def run(accuracy: list[float | None], rounds: int | None = None) -> Curve:
    n = len(accuracy)
    columns = {"accuracy": accuracy, "loss": [2.0 - 0.1 * i for i in range(n)]}
    columns |= {"steps": [0] + [10] * (n - 1), "bytes_down": [0] + [300] * (n - 1), "bytes_up": [0] + [200] * (n - 1)}
    return Curve.of(columns, n - 1 if rounds is None else rounds)


def value(text: str, curve: Curve) -> Measured | None:
    return Measure.parse(text).of(curve)


def test_values_by_hand() -> None:
    curve = run([0.1, 0.5, 0.7, 0.6])
    assert value("accuracy", curve) == Measured(0.6)  # the final round, not the best
    assert value("accuracy@2", curve) == Measured(0.7)
    assert value("accuracy@4", curve) is None
    assert value("loss@1", curve) == Measured(1.9)
    assert value("R_60", curve) == Measured(2)
    assert value("R_70", curve) == Measured(2)
    assert value("R_71", curve) == Measured(3, reached=False)
    assert value("steps_to_60", curve) == Measured(20)
    assert value("bytes_to_60", curve) == Measured(1000)
    assert value("bytes_up_to_60", curve) == Measured(400)
    assert value("bytes_to_90", curve) == Measured(1500, reached=False)
    area = value("auc", curve)
    assert area is not None
    assert area.value == pytest.approx((0.3 + 0.6 + 0.65) / 3)
    assert value("fall", curve) == Measured(pytest.approx(0.1 / 3))  # type: ignore[arg-type]
    assert value("worst_client_accuracy", curve) is None


def test_a_run_that_stopped_for_another_question_gives_no_answer() -> None:
    stopped = run([0.1, 0.5, 0.62], rounds=30)
    assert value("R_60", stopped) == Measured(2)
    assert value("R_75", stopped) is None
    assert value("accuracy", stopped) is None
    assert value("auc", stopped) is None


def test_rounds_that_were_not_evaluated_are_skipped() -> None:
    sparse = run([0.0, None, 0.7, None, 0.8])
    assert value("R_60", sparse) == Measured(2)
    assert value("accuracy@1", sparse) is None
    assert value("auc", sparse) == Measured(pytest.approx((0.7 / 2 * 2 + 0.75 * 2) / 4))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", ["accuracy@20", "R_60", "R_62.5", "bytes_to_75", "bytes_up_to_75", "steps_to_75", "auc", "fall", "loss"]
)
def test_measures_read_back(text: str) -> None:
    assert str(Measure.parse(text)) == text


@pytest.mark.parametrize("text", ["best_accuracy", "accuracy@", "accuracy@x", "R_0", "R_101", "R", ""])
def test_no_such_measure(text: str) -> None:
    with pytest.raises(ValueError, match="measure"):
        Measure.parse(text or "x")


def summaries(measure: str, **runs: list[Curve]) -> dict[str, Summary]:
    by_seed = {name: dict(enumerate(curves)) for name, curves in runs.items()}
    return {row.strategy: row for row in summarise(by_seed, Measure.parse(measure))}


def test_a_measure_without_a_heading_is_refused_when_it_is_registered() -> None:
    class Uploads(Until):
        name = "uploads_to"

        def spent(self, run: Curve, end: int) -> float:
            return 0.0

    with pytest.raises(TypeError, match=r"the measure Uploads has no heading; write heading = "):
        MEASURES.register(Uploads)
    Uploads.heading = "uploads to {} %"
    assert Uploads(62.5).heading == "uploads to 62.5 %"


def test_censored_runs_are_counted_and_stay_in() -> None:
    fast, slow, never = run([0.1, 0.7, 0.7, 0.7]), run([0.1, 0.2, 0.7, 0.7]), run([0.1, 0.2, 0.3, 0.4])
    found = summaries("R_60", a=[fast, slow], b=[slow, never], c=[never, never])
    assert found["a"].text.startswith("1.50 ±")
    assert found["b"].mean.mean == 2.5
    assert (found["b"].unreached, found["b"].horizon, found["b"].median) == (1, 3, math.inf)
    assert "≥" in found["b"].text
    assert "1 of 2 not reached" in found["b"].text
    assert found["c"].text == "> 3 in all 2"
    assert found["c"].median == math.inf
    assert found["b"].difference is not None
    assert found["b"].difference.mean == 1.0
    assert summaries("steps_to_60", a=[fast, slow], b=[slow, never])["b"].difference is None


def test_differences_use_the_seeds_that_both_have() -> None:
    by_seed = {"a": {0: run([0.5]), 1: run([0.6])}, "b": {1: run([0.7]), 2: run([0.9])}}
    (_, b) = summarise(by_seed, Measure.parse("accuracy"))
    assert b.difference is not None
    assert (b.difference.n, b.difference.mean) == (1, pytest.approx(0.1))


def test_the_same_rounds_are_one_comparison() -> None:
    rng = np.random.default_rng(0)
    one, other, third = ([run([x]) for x in rng.uniform(0.4, 0.6, 5)] for _ in range(3))
    alone = summaries("accuracy", a=one, b=other, d=third)
    twice = summaries("accuracy", a=one, b=other, c=other, d=third, e=one)
    assert twice["c"].same_as == "b"
    assert twice["c"].p_holm == twice["b"].p_holm == alone["b"].p_holm
    assert (twice["e"].same_as, twice["e"].p_holm) == ("a", 1.0)
    p = sorted(row.difference.p for row in alone.values() if row.difference)
    assert min(row.p_holm for row in alone.values() if row.p_holm) == pytest.approx(min(1, 2 * p[0]))


def test_values_that_are_equal_by_chance_are_comparisons_of_their_own() -> None:
    """Which comparisons there are may not depend on how they turn out."""
    average = [run([x, 0.5 + x, 0.5]) for x in (0.1, 0.2, 0.3)]
    better = [run([x, 0.6 + x, 0.6 + x / 9]) for x in (0.1, 0.2, 0.3)]
    lucky = [run([0.0, *r.columns["accuracy"][1:]]) for r in better]
    equal = [run([0.0, *r.columns["accuracy"][1:]]) for r in average]
    alone = summaries("accuracy", a=average, b=better)
    found = summaries("accuracy", a=average, b=better, c=lucky, e=equal)
    assert [row.same_as for row in found.values()] == [None] * 4
    assert alone["b"].p_holm is not None
    assert found["b"].p_holm == found["c"].p_holm == pytest.approx(3 * alone["b"].p_holm)
    assert found["e"].p_holm == 1.0
    shared = [run([*r.columns["accuracy"][:2], 0.4]) for r in better]
    assert summaries("accuracy@1", a=average, b=better, c=shared)["c"].same_as == "b"
    assert summaries("accuracy@2", a=average, b=better, c=shared)["c"].same_as is None


def test_a_strategy_that_is_a_seed_behind_its_twin_is_still_one_comparison() -> None:
    rng = np.random.default_rng(1)
    one, other = ([run([x]) for x in rng.uniform(0.4, 0.6, 5)] for _ in range(2))
    found = summaries("accuracy", a=one, b=other, c=other[:4])
    assert (found["c"].same_as, found["c"].p_holm) == ("b", found["b"].p_holm)
    assert found["b"].difference is not None
    assert found["b"].p_holm == found["b"].difference.p


def test_no_mean_of_the_runs_that_did_not_stop() -> None:
    """Runs that stopped early are the fast ones: the others alone would be a biased choice."""
    stopped, slow = run([0.1, 0.7], rounds=3), run([0.1, 0.2, 0.3, 0.4])
    found = summaries("accuracy@2", a=[slow, slow], b=[stopped, slow])["b"]
    assert (found.text, found.missing, found.difference) == ("–", 1, None)
    assert found.note.startswith("no value in 1 of 2 runs")
    assert summaries("R_60", a=[slow, slow], b=[stopped, slow])["b"].mean.mean == 2.0


def test_differences_to_times_that_were_not_reached_are_bounds() -> None:
    fast, never = run([0.1, 0.7, 0.7, 0.7]), run([0.1, 0.2, 0.3, 0.4])
    found = summaries("R_60", a=[fast, fast], b=[fast, never])["b"]
    assert found.difference_text.startswith("≥ 1.00")
    assert summaries("R_60", a=[fast, never], b=[fast, fast])["b"].difference_text.startswith("≤ -1.00")
    both = summaries("R_60", a=[never, fast, fast], b=[never, never, fast])["b"]
    assert both.difference_text.startswith("cut at 3: 0.67 ± ")
    neither = summaries("R_60", a=[never, never], b=[never, never])["b"]
    assert (neither.difference, neither.same_as) == (None, "a")
