"""Every study file of the repository can be run."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedalpha.study import read_study
from fedalpha.study.reproduction import experiment

FILES = sorted((Path(__file__).parents[2] / "studies").glob("*.toml"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_study_file_lays_out(path: Path) -> None:
    found = read_study(path)
    assert found.name == path.stem
    assert found.cells()


def test_the_calibrated_rate_is_the_same_everywhere() -> None:
    rates = {
        name: experiment(name).protocols["calibrated"]["lr"]
        for name in ("fmnist-noniid", "fmnist-hybrid", "fmnist-topk")
    }
    rates |= {p.stem: r for p in FILES if (r := read_study(p).protocols.get("calibrated", {}).get("lr"))}
    assert len(set(rates.values())) == 1
    assert len({experiment(name).protocols["calibrated"]["lr"] for name in ("mnist-iid", "mnist-hybrid")}) == 1
