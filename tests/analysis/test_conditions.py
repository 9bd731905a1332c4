"""When a run stops early."""

from __future__ import annotations

from typing import Any

import pytest

from fedalpha.analysis.conditions import Comparison, Patience, condition


def rows(**columns: list[Any]) -> list[dict[str, Any]]:
    names = list(columns)
    return [
        {"round": r, **dict(zip(names, values, strict=True))}
        for r, values in enumerate(zip(*columns.values(), strict=True))
    ]


def first(text: str, found: list[dict[str, Any]]) -> int | None:
    """The round after which a run with these rows stops."""
    return next((r for r in range(len(found)) if condition(text).holds(found[: r + 1])), None)


def test_a_comparison_looks_at_the_last_row_only() -> None:
    found = rows(accuracy=[0.1, 0.7, None, 0.5])
    assert first("accuracy >= 0.6", found) == 1
    assert not condition("accuracy >= 0.6").holds(found)
    assert not condition("accuracy >= 0.6").holds(found[:3])
    assert not condition("accuracy >= 0.6").holds([])


def test_patience_counts_rounds_since_the_last_improvement() -> None:
    assert first("patience(loss, rounds=2)", rows(loss=[1.0, 0.5, 0.6, 0.4, 0.4, 0.5, 0.1])) == 5
    assert first("patience(accuracy, rounds=2)", rows(accuracy=[0.1, 0.5, 0.4, 0.6, 0.7])) is None
    assert first("patience(accuracy, rounds=2, least=0.2)", rows(accuracy=[0.1, 0.5, 0.6, 0.69, 0.9])) == 3


def test_patience_passes_over_rounds_that_are_not_evaluated() -> None:
    found = rows(accuracy=[0.1, None, None, None, 0.6, None, None, None, 0.5])
    assert first("patience(accuracy, rounds=3)", found) == 8


def test_a_loss_that_is_not_finite_is_no_improvement() -> None:
    assert first("patience(loss, rounds=2)", rows(loss=[1.0, 0.5, None, None], accuracy=[0.1] * 4)) == 3


def test_either_of_two() -> None:
    both = "accuracy >= 0.9 or patience(loss, rounds=2)"
    assert str(condition(both)) == both
    assert condition(both).columns == {"accuracy", "loss"}
    assert first(both, rows(accuracy=[0.1, 0.95, 0.1], loss=[1.0, 0.9, 0.8])) == 1
    assert first(both, rows(accuracy=[0.1, 0.2, 0.3], loss=[0.7, 0.9, 0.8])) == 2


def test_texts_and_objects_are_the_same() -> None:
    assert condition("patience(loss, rounds=5)") == Patience("loss") == condition(Patience("loss"))
    assert condition("accuracy >= 0.5") == Comparison("accuracy", ">=", 0.5)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("accuracy", "write it like 'accuracy >= 0.6'"),
        ("accuracy >= 60", "a fraction between 0 and 1"),
        ("acuracy >= 0.6", "did you mean 'accuracy'"),
        ("patience(los, rounds=5)", "did you mean 'loss'"),
        ("patience(steps)", "no direction that counts as better"),
        ("patience(loss, rounds=0)", "rounds ≥ 1"),
        ("patience(loss, rounds=2.5)", "rounds ≥ 1"),
        ("patience(loss, least=-1)", "a number ≥ 0"),
        ("patient(loss)", "did you mean 'patience'"),
        ("accuracy >= 0.6 or", "write it like"),
        ("seconds >= 3", "unknown column 'seconds'"),
        (0.9, "write it like"),
    ],
)
def test_what_is_not_a_condition(text: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        condition(text)
