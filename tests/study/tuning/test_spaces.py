"""Spaces as text."""

from __future__ import annotations

from typing import Any

import pytest

from fedalpha.apply import APPLIES
from fedalpha.combine import COMBINES
from fedalpha.data import DATASETS, PARTITIONS
from fedalpha.select import SELECTIONS
from fedalpha.strategies import STRATEGIES
from fedalpha.study.tuning.spaces import NAMES, Choice, Range, Space
from fedalpha.update import UPDATES
from fedalpha.update.schedules import SCHEDULES


def accepts(setting: str, text: str) -> bool:
    try:
        STRATEGIES.parse(text)
    except ValueError:
        return False
    return True


def test_no_rule_has_the_name_of_a_space() -> None:
    for registry in (STRATEGIES, SELECTIONS, UPDATES, COMBINES, APPLIES, PARTITIONS, SCHEDULES, DATASETS):
        assert not {entry.name for entry in registry} & set(NAMES)


@pytest.mark.parametrize(
    ("text", "dimensions", "first"),
    [
        ("FedSoftWorse(T=log(0.05, 5))", {"x.T": Range(0.05, 5, log=True)}, "FedSoftWorse(T=0.05)"),
        ("FedWorse(k=whole(1, 4))", {"x.k": Range(1, 4, whole=True)}, "FedWorse(k=1)"),
        ("FedSoftWorse(T=choice(1, inf), loss=choice(before, train))",
         {"x.T": Choice((1, "inf")), "x.loss": Choice(("before", "train"))}, "FedSoftWorse(T=1, loss=before)"),
        ("cap(FedSoftWorse(T=linear(1, 2)), log(0.1, 1))",
         {"x.T": Range(1, 2), "x": Range(0.1, 1, log=True)}, "cap(FedSoftWorse(T=1), 0.1)"),
        ("FedSoftBetter(T=[0.2, 0.5])", {"x.T": Choice((0.2, 0.5))}, "FedSoftBetter(T=0.2)"),
        ("switch(FedSoftWorse(T=log(1, 2)), FedAvg, FedWorse, at=[5, 10])", {"x.T": Range(1, 2, log=True)},
         "switch(FedSoftWorse(T=1), FedAvg, FedWorse, at=[5, 10])"),
        ("mix(FedSoftWorse(T=log(1, 2)), FedSoftBetter(T=log(1, 2)), 0.5)",
         {"x.T": Range(1, 2, log=True), "x.T2": Range(1, 2, log=True)},
         "mix(FedSoftWorse(T=1), FedSoftBetter(T=1), 0.5)"),
        ("log(0.01, 1)", {"x": Range(0.01, 1, log=True)}, 0.01),
        ("FedAvg", {}, "FedAvg"),
        (0.1, {}, 0.1),
        ("shards(size=30", {}, "shards(size=30"),
    ],
)  # fmt: skip
def test_texts(text: Any, dimensions: dict[str, Any], first: Any) -> None:
    space = Space.of({"x": text}, accepts)
    assert dict(space.dimensions) == dimensions
    assert space.at(next(space.corners())) == {"x": first}


def test_finite_spaces_are_listed_and_infinite_ones_are_not() -> None:
    space = Space.of({"strategy": "FedWorse(k=whole(1, 3))", "lr": [0.1, 0.2]})
    assert space.size == 6 == len({str(space.at(p)) for p in space.points()})
    assert Space.of({"lr": "log(0.1, 1)"}).size is None
    assert Space.of({"strategy": "FedAvg"}).size == 1


def test_every_end_is_met_by_a_corner() -> None:
    space = Space.of({"lr": "log(0.1, 1)", "batch": [8, 16, 32]})
    corners = [space.at(point) for point in space.corners()]
    assert {c["lr"] for c in corners} == {0.1, 1}
    assert {c["batch"] for c in corners} == {8, 16, 32}


def test_drawn_numbers_have_three_digits_and_stay_inside() -> None:
    assert Range(0.05, 5, log=True).rounded(1.23456) == 1.23
    assert Range(0.12345, 1).rounded(0.12346) == 0.12345


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("log(5, 0.05)", "the smaller one first"),
        ("log(0, 1)", "both above 0"),
        ("log(1)", "give two numbers"),
        ("log(a, b)", "give two numbers"),
        ("linear(low=1, high=2)", "without names"),
        ("whole(0.5, 2)", "whole numbers"),
        ("choice(1, 1)", "every value once"),
        ("choice()", "at least one"),
        ("choice(log(1, 2))", "cannot read"),
    ],
)
def test_mistakes(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Space.of({"strategy": f"FedSoftWorse(T={text})"})
