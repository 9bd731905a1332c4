"""Every study file of the repository can be run."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedalpha.study import read_study
from fedalpha.study.reproduction import experiment
from fedalpha.study.tuning.design import Design

FILES = sorted((Path(__file__).parents[2] / "studies").glob("*.toml"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_study_file_lays_out(path: Path) -> None:
    found = read_study(path)
    assert found.name == path.stem
    assert found.cells() if found.tune is None else Design.of(found).methods


def test_the_calibrated_rate_of_a_data_set_is_the_same_everywhere() -> None:
    found: dict[str, set[str]] = {}
    experiments = [
        experiment(name) for name in ("mnist-iid", "mnist-hybrid", "fmnist-noniid", "fmnist-hybrid", "fmnist-topk")
    ]
    for plan in [*experiments, *(read_study(path) for path in FILES)]:
        if rate := plan.protocols.get("calibrated", {}).get("lr"):
            found.setdefault(plan.settings["dataset"], set()).add(rate)
    assert {name: len(rates) for name, rates in found.items()} == {"mnist": 1, "fashion-mnist": 1}
